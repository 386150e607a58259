from collections.abc import Callable
from pathlib import Path

import pytest

from base.errors import NotFoundError, RefusedError, UnreachableError
from base.layout import Layout
from base.run_lock import held
from cdi.core.names import QualifiedName
from cdi.directories import load_catalog
from cdi.probe import SystemProbe
from gate.core.repo import RepoConfig
from gate.repos import RepoFiles
from grants.core.model import GrantRequest, RepoGuid
from grants.store import GrantStore
from machine import deletion
from machine.core.engine_info import Contents
from machine.daemon import ManagedDaemon
from machine.renaming import rename
from machine.repos import NewRepo, create, up_lock
from tests.cli.rdc.runner import SPEC
from tests.fake_clock import FakeClock
from tests.fake_daemon import fake_daemon

DEVICE = "nvidia.com/gpu=0"


@pytest.fixture
def layout(short_dir: Path) -> Layout:
    (short_dir / "etc/cdi").mkdir(parents=True)
    (short_dir / "etc/cdi/nvidia.yaml").write_text(SPEC)
    return Layout(short_dir)


def granted(layout: Layout, name: str, upstream: str | None) -> RepoConfig:
    config = create(layout, NewRepo(name=name, upstream=upstream))
    GrantStore(layout, FakeClock()).grant(
        [GrantRequest(repo=RepoGuid(config.guid), device=DEVICE, granted_by="test")],
        load_catalog=lambda: load_catalog([layout.cdi_spec_dir]),
        probe=SystemProbe(),
        repo_names={},
    )
    return config


def doom(layout: Layout) -> deletion.Doomed:
    return deletion.doomed(layout, "a")


def grants(layout: Layout) -> list[QualifiedName]:
    return [grant.device for grant in GrantStore(layout, FakeClock()).read()]


def test_what_would_be_lost(layout: Layout) -> None:
    granted(layout, "a", f"unix://{layout.root}/d.sock")
    found = deletion.loss(layout, doom(layout), FakeClock())
    assert [str(grant.device) for grant in found.grants] == [DEVICE]
    assert (found.data, found.contents, found.holders) == (None, None, ())
    info = {"ServerVersion": "28.5.2", "Containers": 2, "Images": 3}
    with fake_daemon(layout.root / "d.sock", {"GET /info": (200, info)}):
        found = deletion.loss(layout, doom(layout), FakeClock())
    assert found.contents == Contents(containers=2, images=3, volumes=None, size_bytes=None)


def test_a_repo_is_deleted_whole(layout: Layout) -> None:
    config = granted(layout, "a", None)
    paths = layout.repo(config.guid)
    (paths.state / "docker").mkdir(parents=True)
    assert deletion.loss(layout, doom(layout), FakeClock()).data == paths.state
    deletion.delete(layout, doom(layout), FakeClock(), {})
    assert RepoFiles(layout).names() == ()
    assert grants(layout) == []
    assert not paths.state.exists()
    assert not paths.directory.exists()


def test_the_device_is_free_only_when_the_daemon_has_stopped(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = granted(layout, "a", None)
    monkeypatch.setattr(ManagedDaemon, "running", property(lambda self: True))
    clock = FakeClock()
    with held(up_lock_of(layout), "up"), pytest.raises(UnreachableError):
        deletion.delete(layout, doom(layout), clock, {}, sleep=clock.sleep)
    assert [str(each) for each in grants(layout)] == [DEVICE]
    monkeypatch.undo()
    deletion.delete(layout, deletion.doomed(layout, config.guid), clock, {})
    assert grants(layout) == []


def up_lock_of(layout: Layout) -> Path:
    layout.run_dir.mkdir(parents=True, exist_ok=True)
    return up_lock(layout)


def test_only_what_was_a_repo_can_be_deleted(layout: Layout) -> None:
    config = create(layout, NewRepo(name="a"))
    assert deletion.doomed(layout, "a") == deletion.Doomed(name=config.name, config=config)
    for ref in ("b", "00000000-0000-4000-8000-000000000000", "a@other"):
        with pytest.raises(NotFoundError):
            deletion.doomed(layout, ref)


def test_a_gate_that_runs_lets_go_first(layout: Layout) -> None:
    config = granted(layout, "a", f"unix://{layout.root}/d.sock")
    socket, clock, waited = layout.repo(config.guid).socket, FakeClock(), []

    def sleep(seconds: float) -> None:
        waited.append(RepoFiles(layout).names())
        clock.sleep(seconds)
        if len(waited) == 3:
            socket.unlink()

    with fake_daemon(layout.gate_socket, {}):
        socket.touch()
        deletion.delete(layout, doom(layout), clock, {}, sleep=sleep)
    assert waited == [(), (), ()]
    assert not socket.parent.exists()


def test_a_gate_that_does_not_let_go_is_not_waited_for_long(layout: Layout) -> None:
    config, clock = granted(layout, "a", f"unix://{layout.root}/d.sock"), FakeClock()
    with fake_daemon(layout.gate_socket, {}):
        layout.repo(config.guid).socket.touch()
        deletion.delete(layout, doom(layout), clock, {}, sleep=clock.sleep)
    assert grants(layout) == []


@pytest.mark.parametrize("by", ["name", "guid"])
@pytest.mark.parametrize(
    "spoil", [lambda text: text + "oops: 1\n", lambda text: text + "a: [", lambda text: "{" + text]
)
def test_a_repo_whose_file_is_broken_is_deleted_whole(
    layout: Layout, by: str, spoil: Callable[[str], str]
) -> None:
    config = granted(layout, "a", None)
    path, state = RepoFiles(layout).path("a"), layout.repo(config.guid).state
    state.mkdir(parents=True)
    path.write_text(spoil(path.read_text()))
    found = deletion.doomed(layout, "a" if by == "name" else config.guid)
    assert (found.config and found.config.guid, found.only_file) == (config.guid, False)
    assert found.problem
    assert deletion.loss(layout, found, FakeClock()).data == state
    deletion.delete(layout, found, FakeClock(), {})
    assert grants(layout) == []
    assert not path.exists()
    assert not state.exists()


def test_of_a_file_without_a_guid_only_the_file_goes(layout: Layout) -> None:
    granted(layout, "b", None)
    RepoFiles(layout).path("a").write_bytes(b"\xff\x00")
    found = doom(layout)
    assert (found.config, found.only_file) == (None, True)
    assert deletion.loss(layout, found, FakeClock()) == deletion.Loss()
    deletion.delete(layout, found, FakeClock(), {})
    assert RepoFiles(layout).names() == ("b",)
    assert [str(each) for each in grants(layout)] == [DEVICE]


@pytest.mark.parametrize("gone", ["a", "copy"])
def test_a_copied_file_takes_nothing_with_it(layout: Layout, gone: str) -> None:
    config = granted(layout, "a", None)
    files = RepoFiles(layout)
    files.path("copy").write_text(files.path("a").read_text().replace("name: a", "name: copy"))
    state = layout.repo(config.guid).state
    state.mkdir(parents=True)
    with pytest.raises(RefusedError):
        deletion.doomed(layout, config.guid)
    found = deletion.doomed(layout, gone)
    assert found.only_file
    deletion.delete(layout, found, FakeClock(), {})
    (left,) = files.names()
    assert left == ({"a", "copy"} - {gone}).pop()
    assert files.read(left).guid == config.guid
    assert [str(each) for each in grants(layout)] == [DEVICE]
    assert state.exists()


def test_a_repo_that_was_renamed_meanwhile_is_deleted_all_the_same(layout: Layout) -> None:
    granted(layout, "a", None)
    found = doom(layout)
    rename(layout, "a", "b", FakeClock())
    deletion.delete(layout, found, FakeClock(), {})
    assert RepoFiles(layout).names() == ()
    assert grants(layout) == []
