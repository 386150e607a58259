"""One gate before one real daemon, shared by the tests of a module."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine import IMAGE, Daemon, Docker, Engine
from tests.system.gate_machine import GateMachine, example_spec, gate_machine

REPO = "gpu-a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """A daemon twice: raw, and behind the gate as the repo's users see it."""

    machine: GateMachine
    daemon: Daemon
    repo: dict[str, str]
    raw: Docker
    gate: Docker

    @property
    def socket(self) -> Path:
        return Path(self.repo["socket"])

    def grant(self, *devices: str, repo: str = REPO) -> None:
        names = [part for device in devices for part in ("--device", device)]
        self.machine.rdc("repo", "gpu", "grant", repo, *names)

    def revoke_all(self, repo: str = REPO) -> None:
        self.machine.rdc("repo", "gpu", "revoke", repo, "--all")

    def api_calls(self, since: int) -> list[str]:
        """What the daemon was asked since its log had this size, as `POST /v1.51/containers/create`.

        Without what the gate asks for itself, which has no version in its path.
        """
        text = self.daemon.log_path.read_bytes()[since:].decode()
        found = []
        for line in text.splitlines():
            if "method=" in line and "request-url=" in line:
                fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
                found.append(f"{fields['method']} {fields['request-url']}")
            elif "Calling " in line:
                found.append(line.split("Calling ", 1)[1].rstrip('"'))
        return [call for call in found if "/v1." in call or call.endswith("/_ping")]

    def log_size(self) -> int:
        return self.daemon.log_path.stat().st_size


def start_gated(engine: Engine, *, more_specs: Mapping[str, object] | None = None) -> Iterator[Gated]:
    """A daemon behind a gate; with `more_specs` it also reads this spec from a directory of its own."""
    with gate_machine() as machine:
        machine.write_spec("nvidia.json", example_spec("0", "1"))
        machine.start()
        placeholder = machine.root / "d.sock"
        repo = machine.create_repo(REPO, placeholder)
        directories = [repo["cdi_spec_dir"]]
        if more_specs is not None:
            directories.append(str(machine.root / "more"))
            (machine.root / "more").mkdir()
            (machine.root / "more/more.json").write_text(json.dumps(more_specs))
            file = machine.root / f"etc/rediacc/repos/{REPO}.yaml"
            file.write_text(file.read_text().replace("accept: []", "accept: [cdi-spec-dirs]"))
        daemon = Daemon(engine, config={"cdi-spec-dirs": directories, "debug": True})
        try:
            placeholder.symlink_to(daemon.socket)
            daemon.start()
            machine.wait_for_socket(repo["socket"])
            gate = Docker(f"unix://{repo['socket']}", daemon.docker.engine)
            yield Gated(machine=machine, daemon=daemon, repo=repo, raw=daemon.docker, gate=gate)
        finally:
            daemon.close()


@pytest.fixture(scope="module")
def gated28(engine28: Engine) -> Iterator[Gated]:
    """The current engine behind a gate, debug log on, with the devices 0, 1 and all."""
    yield from start_gated(engine28)


@pytest.fixture(scope="module")
def each_gated(each_engine: Engine) -> Iterator[Gated]:
    """Both engines in turn, each behind a gate."""
    yield from start_gated(each_engine)


@pytest.fixture
def sleeper(gated28: Gated) -> str:
    name = "sleeper"
    gated28.raw.run("rm", "-f", name)
    gated28.raw.ok("run", "-d", "--name", name, "--network", "none", IMAGE, "sleep", "300")
    return name
