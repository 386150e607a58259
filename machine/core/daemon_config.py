"""The configuration of a repo's own dockerd: daemon.json, command line and environment. Pure.

A managed daemon resolves CDI names from the repo's projection alone, listens on one private unix socket, has
no runtime that would bring hardware on its own, and gives its builder no entitlements; the gate's
preconditions (default runtime runc, no device entitlement, no hook in PATH) hold by construction.

Source: dockerd's configuration file reference; unix(7) for the length of socket paths.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from base.errors import RefusedError
from base.layout import ROOT_VARIABLE, UNIX_PATH_MAX

_RELEASE = re.compile(r"(\d{1,4})\.(\d{1,4})(?![0-9])", re.ASCII)
OLDEST_ENGINE = (25, 0)
"""The first Docker release with CDI."""

TOOLS = (
    "containerd", "containerd-shim-runc-v2", "runc", "docker-init", "docker-proxy", "iptables", "ip6tables",
    "ip", "modprobe", "apparmor_parser", "ps", "git", "xz", "unpigz", "pigz", "dirname", "readlink",
)  # fmt: skip
"""Every program that a daemon may find by name. `nvidia-container-runtime-hook` and `nvidia-cdi-hook` are
not among them on purpose: a daemon that finds one registers a device driver which answers `--gpus` (facts:
moby devices_nvidia_linux.go). Hooks in CDI specs have absolute paths and need no entry."""

REQUIRED_TOOLS = ("containerd", "containerd-shim-runc-v2", "runc")

_LONGEST_SOCKET_BELOW_EXEC_ROOT = "containerd/containerd.sock.ttrpc"
_PASSED_VARIABLES = (
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "DOCKER_RAMDISK", "TZ",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """The repo's own default bridge: device name (at most 15 bytes), its gateway as `ip/prefix`."""

    device: str
    gateway: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonPlan:
    """Everything that decides how a managed daemon runs; paths are absolute.

    `pools` are the repo's own IPv4 networks, from which user-defined networks get /25 pieces. `bridge` None
    means that containers have no default network. `runtimes` maps further OCI runtimes' names to their
    programs.
    """

    guid: str
    config_file: str
    socket: str
    pid_file: str
    data_root: str
    exec_root: str
    home: str
    bin_dir: str
    cdi_spec_dir: str
    pools: tuple[str, ...]
    bridge: Bridge | None
    runtimes: Mapping[str, str]
    storage_driver: str | None
    docker_proxy: str | None
    docker_init: str | None


def daemon_json(plan: DaemonPlan) -> bytes:
    """The daemon's configuration file; equal plans give equal bytes."""
    config: dict[str, object] = {
        "features": {"cdi": True},
        "cdi-spec-dirs": [plan.cdi_spec_dir],
        "hosts": [f"unix://{plan.socket}"],
        "group": "root",
        "pidfile": plan.pid_file,
        "data-root": plan.data_root,
        "exec-root": plan.exec_root,
        "default-runtime": "runc",
        "builder": {"entitlements": {"network-host": False, "security-insecure": False, "device": False}},
        "experimental": False,
        # Containers must not outlive the daemon: a revoked device would stay in use with nobody to ask about
        # it.
        "live-restore": False,
        # Several daemons in one network namespace flush each other's DOCKER chains when they start, so none
        # of them touches the packet filter; the few rules that a repo needs are our own (machine.network).
        "iptables": False,
        "ip6tables": False,
        "ip-masq": False,
        # Without a default bridge nothing needs the machine to route, so it is left as it is.
        "ip-forward": plan.bridge is not None,
        "default-address-pools": [{"base": pool, "size": 25} for pool in plan.pools],
        "log-level": "warn",
        "userland-proxy": plan.docker_proxy is not None,
        "bridge": plan.bridge.device if plan.bridge is not None else "none",
    }
    if plan.docker_proxy is not None:
        config["userland-proxy-path"] = plan.docker_proxy
    if plan.docker_init is not None:
        config["init-path"] = plan.docker_init
    if plan.storage_driver is not None:
        config["storage-driver"] = plan.storage_driver
    if plan.runtimes:
        config["runtimes"] = {name: {"path": path} for name, path in sorted(plan.runtimes.items())}
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()


def arguments(dockerd: str, plan: DaemonPlan) -> tuple[str, ...]:
    """The daemon's command line; everything else stands in the configuration file."""
    return (dockerd, "--config-file", plan.config_file)


def environment(inherited: Mapping[str, str], plan: DaemonPlan) -> Mapping[str, str]:
    """The daemon's whole environment: proxies and certificates from ours, nothing else of ours.

    In particular neither our PATH (hooks, runtimes) nor `DOCKER_*`, `NVIDIA_*`, `LD_*` or `GODEBUG`.
    """
    passed = {key: inherited[key] for key in _PASSED_VARIABLES if key in inherited}
    return {**passed, "PATH": plan.bin_dir, "HOME": plan.home, "TMPDIR": f"{plan.data_root}/tmp"}  # noqa: S108 - private


def check_socket_paths(*, socket: str, exec_root: str, root: str) -> None:
    """Refuse a root so deep that a unix socket below it could not be bound.

    Raises:
        RefusedError: some socket path would be longer than 107 bytes.
    """
    longest = max(
        (socket, f"{exec_root}/{_LONGEST_SOCKET_BELOW_EXEC_ROOT}"), key=lambda path: len(path.encode())
    )
    excess = len(longest.encode()) - UNIX_PATH_MAX
    if excess > 0:
        raise RefusedError(
            f"root {root} is too deep for a managed daemon: socket path {longest} is {excess} bytes too long",
            hint=f"use a root of at most {len(root.encode()) - excess} bytes (--root or {ROOT_VARIABLE})",
        )


def check_engine(version: str) -> None:
    """Refuse an engine without CDI.

    Args:
        version: like `28.5.2` or `26.1.5+dfsg1`.

    Raises:
        RefusedError: it is older than 25.0 or unreadable.
    """
    if engine_version(version) < OLDEST_ENGINE:
        raise RefusedError(
            f"Docker engine {version} has no CDI",
            hint="install Docker 25 or newer, or run scripts/install-engine",
        )


def engine_version(text: str) -> tuple[int, int]:
    """Major and minor release number; (0, 0) when the text has none."""
    numbers = _RELEASE.match(text)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def version_in(output: str) -> str:
    """The version in what `dockerd --version` prints, `Docker version 28.5.2, build deadbeef`; "" if none."""
    words = output.replace(",", " ").split()
    return words[words.index("version") + 1] if "version" in words[:-1] else ""
