"""Where everything lies below one root, so that tests and demos never touch the host.

Source: design section 4. Paths only; nothing here reads or writes.
"""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT_VARIABLE = "RDC_ROOT"
HOST_VARIABLE = "RDC_HOST"
UNIX_PATH_MAX = 107
"""Longest unix socket path in bytes: `sun_path` holds 108 with the final NUL (unix(7))."""


@dataclass(frozen=True, slots=True)
class RepoPaths:
    """One repo's run-time paths.

    `directory` is `run/rediacc/<guid>`; only `private` may not be entered by the repo's users.
    """

    directory: Path
    state: Path

    @property
    def socket(self) -> Path:
        """The gate's socket, the repo's `DOCKER_HOST`."""
        return self.directory / "docker.sock"

    @property
    def private(self) -> Path:
        """Directory (0700) of what only the operator may reach."""
        return self.directory / "private"

    @property
    def daemon_socket(self) -> Path:
        """The managed daemon's raw socket."""
        return self.private / "dockerd.sock"

    @property
    def cdi_spec_dir(self) -> Path:
        """The projection: the only spec directory that the repo's daemon reads."""
        return self.directory / "cdi"


@dataclass(frozen=True, slots=True)
class Layout:
    """The machine's files below `root`.

    `host` is where its hardware is looked for: `/dev`, `/proc` and `/sys` lie below it. Tests lay out others;
    what the gate decides never depends on it.
    """

    root: Path
    host: Path = Path("/")

    @classmethod
    def from_environment(cls, root: str | None = None) -> "Layout":
        """The layout below `root`, else `$RDC_ROOT`, else `/`; the hardware below `$RDC_HOST`, else `/`."""
        return cls(
            Path(root or os.environ.get(ROOT_VARIABLE) or "/").absolute(),
            Path(os.environ.get(HOST_VARIABLE) or "/").absolute(),
        )

    @property
    def gate_config(self) -> Path:
        """Machine-wide configuration."""
        return self.root / "etc/rediacc/gate.yaml"

    @property
    def repos_dir(self) -> Path:
        """One `<name>.yaml` per repo."""
        return self.root / "etc/rediacc/repos"

    @property
    def inventory(self) -> Path:
        """What setup detected."""
        return self.root / "etc/rediacc/gpu/inventory.json"

    @property
    def grants(self) -> Path:
        """The grant store; its lock is the same path with `.lock` added."""
        return self.root / "etc/rediacc/gpu/grants.json"

    @property
    def cdi_spec_dir(self) -> Path:
        """The machine's CDI specs: the one directory that grants are validated against."""
        return self.root / "etc/cdi"

    @property
    def run_dir(self) -> Path:
        """Sockets and projections, gone after a reboot."""
        return self.root / "run/rediacc"

    @property
    def gate_socket(self) -> Path:
        """The gate's own health and metrics; whoever connects knows that the gate runs."""
        return self.run_dir / "gate.sock"

    @property
    def state_dir(self) -> Path:
        """What outlives a reboot: ledger, repo data."""
        return self.root / "var/lib/rediacc"

    @property
    def audit_log(self) -> Path:
        """Hash-chained decisions and grant changes."""
        return self.root / "var/log/rediacc/audit.jsonl"

    def daemon_log(self, guid: str) -> Path:
        """What a repo's own daemon writes."""
        return self.audit_log.parent / f"dockerd-{guid}.log"

    def repo(self, guid: str) -> RepoPaths:
        """The run-time paths of the repo with this GUID."""
        return RepoPaths(self.run_dir / guid, self.state_dir / "repos" / guid)
