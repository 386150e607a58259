"""Clock, room and access: what makes a machine's promises hollow without a request ever being wrong."""

import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from base.layout import Layout
from gate.audit import AuditLog
from gate.core.audit_chain import Entry, Event
from gate.core.repo import RepoConfig
from grants.core.model import GrantRequest, RepoGuid
from grants.store import GrantStore
from machine import upkeep
from machine.core.findings import Finding, Level
from machine.gpu import Gpu
from machine.journal import operator
from machine.repos import NewRepo, create
from machine.upkeep import access_findings, clock_findings, room_findings, socket_findings, synchronised
from tests.cli.rdc.runner import SPEC
from tests.fake_clock import FakeClock


@pytest.fixture
def layout(short_dir: Path) -> Layout:
    (short_dir / "etc/cdi").mkdir(parents=True)
    (short_dir / "etc/cdi/nvidia.yaml").write_text(SPEC)
    return Layout(short_dir)


@pytest.fixture
def repo(layout: Layout) -> RepoConfig:
    return create(layout, NewRepo(name="a", upstream=f"unix://{layout.root}/d.sock"))


def grant(layout: Layout, repo: RepoConfig, clock: FakeClock, *, hours: int | None = None) -> None:
    ends = None if hours is None else clock.now() + timedelta(hours=hours)
    request = GrantRequest(
        repo=RepoGuid(repo.guid), device="nvidia.com/gpu=0", granted_by="test", expires_at=ends
    )
    Gpu(layout, clock).grant(repo, [request])


def clocks(layout: Layout, clock: FakeClock) -> list[Finding]:
    return list(clock_findings(layout, GrantStore(layout, clock).read(), clock))


@pytest.mark.parametrize("what", ["grant", "audit"])
def test_a_clock_that_went_back(layout: Layout, repo: RepoConfig, what: str) -> None:
    late = FakeClock()
    late.sleep(3600)
    if what == "grant":
        grant(layout, repo, late)
        layout.audit_log.unlink()
    else:
        entry = Entry(at=late.now(), event=Event.CONTAINER_STOPPED, actor=operator())
        AuditLog(layout, late, operator()).append([entry])
    (found,) = clocks(layout, FakeClock())
    assert (found.check, found.level) == ("clock", Level.ERROR)
    assert "2026-11-30T12:00:00Z" in found.detail
    assert "2026-11-30T13:00:00Z" in found.detail
    assert clocks(layout, late) == []


@pytest.mark.parametrize(("kept", "hours", "told"), [
    (False, 8, True), (False, None, False), (True, 8, False),
])  # fmt: skip
def test_a_clock_that_nobody_sets_matters_when_grants_end(
    layout: Layout,
    repo: RepoConfig,
    monkeypatch: pytest.MonkeyPatch,
    kept: bool,
    hours: int | None,
    told: bool,
) -> None:
    monkeypatch.setattr(upkeep, "synchronised", lambda: kept)
    clock = FakeClock()
    grant(layout, repo, clock, hours=hours)
    assert [(each.check, each.level) for each in clocks(layout, clock)] == [("clock", Level.WARNING)] * told
    clock.sleep(9 * 3600)
    assert clocks(layout, clock) == [], "a grant that has ended ends by no clock any more"


def test_the_kernel_tells_of_its_clock() -> None:
    """As `adjtimex` in another program says, where there is one to ask."""
    try:
        said = subprocess.run(
            ["timedatectl", "show", "-p", "NTPSynchronized"], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        said = ""
    if said.startswith("NTPSynchronized="):
        assert synchronised() == said.startswith("NTPSynchronized=yes")
    else:
        assert isinstance(synchronised(), bool)


def test_an_audit_log_that_cannot_be_read(layout: Layout, repo: RepoConfig) -> None:
    layout.audit_log.unlink(missing_ok=True)
    layout.audit_log.mkdir(parents=True)
    assert [each.check for each in clocks(layout, FakeClock())] == ["audit-log"]


@pytest.fixture
def small_disk(layout: Layout, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A filesystem of some MiB for the repos' data."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    layout.state_dir.mkdir(parents=True)
    options = f"size={request.param}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", layout.state_dir], check=True)
    yield layout.state_dir
    subprocess.run(["umount", layout.state_dir], check=True)


@pytest.mark.parametrize(
    ("small_disk", "level"), [(8, Level.ERROR), (64, Level.WARNING), (900, None)], indirect=["small_disk"]
)
def test_room_that_runs_out(layout: Layout, small_disk: Path, level: Level | None) -> None:
    found = [each for each in room_findings(layout) if str(small_disk) in each.detail]
    assert [each.level for each in found] == ([] if level is None else [level])


def test_files_that_others_may_write(layout: Layout, repo: RepoConfig) -> None:
    assert list(access_findings(layout)) == []
    opened = {
        layout.repos_dir / "a.yaml": 0o666,
        layout.cdi_spec_dir: 0o777,
        layout.cdi_spec_dir / "nvidia.yaml": 0o664,
        layout.repos_dir: 0o775,
    }
    for path, mode in opened.items():
        path.chmod(mode)
    found = list(access_findings(layout))
    assert {each.detail.partition(" ")[0] for each in found} == set(map(str, opened))
    assert all(each.level is Level.ERROR and "chmod go-w" in each.remedy for each in found)


@pytest.mark.skipif(os.geteuid() != 0, reason="chown needs root")
def test_files_that_belong_to_somebody_else(layout: Layout, repo: RepoConfig) -> None:
    os.chown(layout.repos_dir / "a.yaml", 65534, 65534)
    (found,) = access_findings(layout)
    assert "belongs to user 65534" in found.detail


def test_sockets_that_are_open_to_others(tmp_path: Path) -> None:
    socket, private = tmp_path / "docker.sock", tmp_path / "private"
    assert list(socket_findings("a", socket, private)) == []
    socket.touch(0o660)
    private.mkdir(0o700)
    assert list(socket_findings("a", socket, private)) == []
    socket.chmod(0o666)
    private.chmod(0o755)
    found = list(socket_findings("a", socket, private))
    assert [(each.repo, each.check) for each in found] == [("a", "socket-access"), ("a", "private-access")]
    assert [each.remedy for each in found] == [f"'chmod 0660 {socket}'", f"'chmod 0700 {private}'"]
