import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from base.layout import Layout
from gate.core.repo import RepoConfig, RepoName
from gate.repos import RepoFiles
from machine.core.findings import Finding, Level
from machine.doctor import examine
from tests.fake_clock import FakeClock
from tests.fake_daemon import FakeDaemon, fake_daemon

GUID = "gpu-a-0000"


class Ward:
    """A root with one repo whose gate and daemon are well."""

    def __init__(self, root: Path, daemon: FakeDaemon) -> None:
        self.layout = Layout(root)
        self.daemon = daemon
        self.spec_dir = root / "etc/cdi"
        self.spec_dir.mkdir(parents=True)
        self.info: dict[str, object] = {
            "ServerVersion": "28.5.2",
            "DefaultRuntime": "runc",
            "CDISpecDirs": [str(self.layout.repo(GUID).cdi_spec_dir)],
        }
        daemon.answers["GET /info"] = (200, self.info)
        daemon.answers["GET /version"] = (200, {"ApiVersion": "1.51", "MinAPIVersion": "1.24"})
        self.save()

    def save(self, *accept: str) -> None:
        config = RepoConfig(
            name=RepoName("gpu-a"), guid=GUID, upstream=str(self.layout.root / "d.sock"), accept=accept
        )
        RepoFiles(self.layout).save(config, replace=True)

    def checks(self) -> dict[str, Level]:
        return {each.check: each.level for each in self.examine()}

    def examine(self) -> tuple[Finding, ...]:
        found = examine(self.layout, FakeClock())
        assert all(each.detail and each.remedy for each in found)
        return found


@pytest.fixture
def listen() -> Iterator[Callable[[Path], socket.socket]]:
    opened: list[socket.socket] = []

    def make(path: Path) -> socket.socket:
        path.parent.mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o660)
        listener.listen(64)
        opened.append(listener)
        return listener

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def ward(short_dir: Path, listen: Callable[[Path], socket.socket]) -> Iterator[Ward]:
    with fake_daemon(short_dir / "d.sock", {}) as daemon:
        made = Ward(short_dir, daemon)
        listen(made.layout.gate_socket)
        listen(made.layout.repo(GUID).socket)
        yield made


def test_a_machine_that_is_well(ward: Ward) -> None:
    assert ward.checks() == {}


def test_preconditions_and_what_the_file_accepts(ward: Ward) -> None:
    ward.info |= {"ExperimentalBuild": True, "CDISpecDirs": []}
    assert ward.checks() == {"experimental": Level.ERROR, "no-cdi": Level.WARNING}
    ward.save("experimental")
    assert ward.checks() == {"experimental": Level.WARNING, "no-cdi": Level.WARNING}
    ward.info |= {"DefaultRuntime": "nvidia"}
    assert ward.checks()["default-runtime"] is Level.ERROR


def test_what_does_not_answer(ward: Ward, short_dir: Path) -> None:
    ward.layout.gate_socket.unlink()
    ward.layout.repo(GUID).socket.unlink()
    (short_dir / "d.sock").unlink()
    found = ward.examine()
    assert [(each.repo, each.check) for each in found] == [
        ("", "gate"), ("gpu-a", "gate-socket"), ("gpu-a", "daemon")
    ]  # fmt: skip
    assert {each.level for each in found} == {Level.ERROR}


def test_files_that_cannot_be_read(ward: Ward) -> None:
    (ward.layout.repos_dir / "bad.yaml").write_text("nonsense: true\n")
    (ward.spec_dir / "bad.json").write_text("{")
    assert ward.checks() == {"repo-file": Level.ERROR, "cdi-spec": Level.ERROR}


def test_a_damaged_grant_store_is_a_finding(ward: Ward) -> None:
    ward.layout.grants.parent.mkdir(parents=True)
    ward.layout.grants.write_text("{")
    assert ward.checks() == {"grant-store": Level.ERROR}


def test_a_managed_daemon_needs_an_engine(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    RepoFiles(ward.layout).save(RepoConfig(name=RepoName("own"), guid="own-0000"))
    empty = ward.layout.root / "empty"
    (empty / "dockerd").mkdir(parents=True)
    ward.layout.gate_config.write_text(f"schema_version: 1\nengine: {{dir: {empty}}}\n")
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("RDC_CACHE", str(empty))
    monkeypatch.setattr("machine.engine.SYSTEM_PATH", ())
    assert ward.checks()["engine"] is Level.ERROR
