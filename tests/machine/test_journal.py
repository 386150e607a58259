import os
import pwd
from pathlib import Path

import pytest

from base.clock import SystemClock
from base.errors import AccessError, RdcError
from base.layout import Layout
from gate.audit import AuditLog
from gate.core.audit_chain import Actor, AuditedRepo, Entry
from gate.core.repo import RepoConfig
from gate.repos import RepoFiles
from grants.core.broken import GrantRefusedError
from grants.core.model import GrantRequest, RepoGuid
from grants.store import GrantStore
from machine import deletion
from machine.gpu import Gpu
from machine.journal import Journal, UnrecordedError, operator
from machine.renaming import rename
from machine.repos import NewRepo, create, fork
from tests.cli.rdc.runner import SPEC
from tests.cli.rdc.test_gpu import LIST
from tests.fake_clock import FakeClock
from tests.fake_daemon import fake_daemon

DEVICE = "nvidia.com/gpu=0"


@pytest.fixture
def layout(short_dir: Path) -> Layout:
    (short_dir / "etc/cdi").mkdir(parents=True)
    (short_dir / "etc/cdi/nvidia.yaml").write_text(SPEC)
    return Layout(short_dir)


@pytest.fixture
def repo(layout: Layout) -> RepoConfig:
    return create(layout, NewRepo(name="a", upstream=f"unix://{layout.root}/d.sock"))


def told(layout: Layout) -> list[Entry]:
    log = AuditLog(layout, SystemClock(), operator())
    assert log.verify().whole
    return [record.entry for record in log.records()]


def events(layout: Layout) -> list[tuple[str, str]]:
    return [(entry.event, entry.subject) for entry in told(layout)]


def request(repo: RepoConfig, device: str = DEVICE, **terms: object) -> GrantRequest:
    return GrantRequest(repo=RepoGuid(repo.guid), device=device, granted_by="ann", **terms)


def break_log(layout: Layout) -> None:
    layout.audit_log.unlink(missing_ok=True)
    layout.audit_log.mkdir()


def mend_log(layout: Layout) -> None:
    layout.audit_log.rmdir()


def test_every_change_is_recorded_with_who_made_it(layout: Layout, repo: RepoConfig) -> None:
    gpu = Gpu(layout, FakeClock())
    gpu.grant(repo, [request(repo, note="run 12"), request(repo, "nvidia.com/gpu=1")])
    gpu.grant(repo, [request(repo)], dry_run=True)
    gpu.revoke(RepoGuid(repo.guid), [DEVICE], repo, stop=False)
    deletion.delete(layout, deletion.doomed(layout, "a"), FakeClock(), {})
    assert events(layout) == [
        ("repo.created", "a"),
        ("grant.granted", DEVICE),
        ("grant.granted", "nvidia.com/gpu=1"),
        ("grant.revoked", DEVICE),
        ("repo.deleted", "a"),
        ("grant.revoked", "nvidia.com/gpu=1"),
    ]
    for entry in told(layout):
        assert entry.actor == operator()
        assert entry.repo is not None
        assert (entry.repo.name, entry.repo.guid) == ("a", repo.guid)
    assert "run 12" in told(layout)[1].detail
    assert "ann" in told(layout)[1].detail


def test_a_grant_whose_end_came_is_told_when_it_is_dropped(layout: Layout, repo: RepoConfig) -> None:
    clock = FakeClock()
    gpu = Gpu(layout, clock)
    soon = FakeClock()
    soon.sleep(5)
    gpu.grant(repo, [request(repo, expires_at=soon.now())])
    clock.sleep(10)
    gpu.grant(repo, [request(repo, "nvidia.com/gpu=1")])
    assert sorted(events(layout)[2:]) == [("grant.expired", DEVICE), ("grant.granted", "nvidia.com/gpu=1")]


def test_a_refused_grant_is_recorded(layout: Layout, repo: RepoConfig) -> None:
    gpu = Gpu(layout, FakeClock())
    for dry_run in (True, False):
        with pytest.raises(GrantRefusedError):
            gpu.grant(repo, [request(repo), request(repo, "vendor.com/thing=0")], dry_run=dry_run)
    (entry,) = told(layout)[1:]
    assert (entry.event, entry.subject, entry.rules) == (
        "grant.refused",
        "vendor.com/thing=0",
        ("unknown-device",),
    )


def test_forced_stops_are_recorded(layout: Layout, repo: RepoConfig) -> None:
    gpu = Gpu(layout, FakeClock())
    gpu.grant(repo, [request(repo)])
    one = "f" * 64
    inspected = {
        "Id": one,
        "Name": "/c",
        "HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [DEVICE]}]},
    }
    answers: dict[str, tuple[int, object]] = {
        LIST: (200, [{"Id": one}]),
        f"GET /containers/{one}/json": (200, inspected),
        f"POST /containers/{one}/stop?t=10": (204, b""),
    }
    with fake_daemon(layout.root / "d.sock", answers):
        done = gpu.revoke(RepoGuid(repo.guid), None, repo, stop=True)
    assert [each.id for each in done.stopped] == ["f" * 64], done
    assert events(layout)[-2:] == [("grant.revoked", DEVICE), ("container.stopped", "f" * 64)]


def test_what_cannot_be_recorded_is_not_given_away(layout: Layout, repo: RepoConfig) -> None:
    break_log(layout)
    gpu = Gpu(layout, FakeClock())
    with pytest.raises(AccessError):
        gpu.grant(repo, [request(repo)])
    assert gpu.grants_of(RepoGuid(repo.guid)) == ()
    with pytest.raises(AccessError):
        create(layout, NewRepo(name="b", upstream=f"unix://{layout.root}/b.sock"))
    assert RepoFiles(layout).names() == ("a",)


def test_what_cannot_be_recorded_is_taken_away_all_the_same(layout: Layout, repo: RepoConfig) -> None:
    gpu = Gpu(layout, FakeClock())
    gpu.grant(repo, [request(repo)])
    break_log(layout)
    done = gpu.revoke(RepoGuid(repo.guid), None, repo, stop=False)
    assert done.unrecorded
    assert gpu.grants_of(RepoGuid(repo.guid)) == ()
    with pytest.raises(UnrecordedError):
        deletion.delete(layout, deletion.doomed(layout, "a"), FakeClock(), {})
    assert RepoFiles(layout).names() == ()
    assert not layout.repo(repo.guid).directory.exists()
    mend_log(layout)


def test_a_recorded_change_that_fails_gets_a_second_line(layout: Layout, repo: RepoConfig) -> None:
    gpu = Gpu(layout, FakeClock())
    layout.grants.with_name("grants.json").mkdir(parents=True)
    with pytest.raises(RdcError):
        gpu.grant(repo, [request(repo)])
    assert events(layout) == [("repo.created", "a")], "the store could not even be read"
    layout.grants.rmdir()

    journal = Journal(layout, FakeClock(), {RepoGuid(repo.guid): "a"})
    store = GrantStore(layout, FakeClock(), journal=journal.changing)

    def no_room(*args: object, **options: object) -> int:
        raise RdcError("no room")

    store._keep_previous = no_room  # type: ignore[method-assign]
    with pytest.raises(RdcError):
        Gpu.grant(_with_store(gpu, store), repo, [request(repo)])
    assert events(layout)[1:] == [("grant.granted", DEVICE), ("grant.failed", DEVICE)]
    with pytest.raises(ZeroDivisionError), journal.creating(repo):
        raise ZeroDivisionError
    assert events(layout)[3:] == [("repo.created", "a"), ("repo.failed", "a")]


def _with_store(gpu: Gpu, store: GrantStore) -> Gpu:
    gpu._store = store
    return gpu


def test_who_the_operator_is(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    login = tmp_path / "loginuid"
    login.write_text(str(os.getuid()))
    found = operator({"SUDO_USER": "ann"}, login)
    assert found == Actor(uid=os.getuid(), gid=os.getgid(), pid=os.getpid(), login=me, sudo_user="ann")
    for text, name in (("4294967295", ""), ("4000000000", "4000000000"), ("junk", "")):
        login.write_text(text)
        assert operator({}, login).login == name
    assert operator({}, tmp_path / "none").login == ""


def test_a_fork_tells_where_it_comes_from_and_a_name_is_not_changed_unrecorded(
    layout: Layout, repo: RepoConfig
) -> None:
    forked = fork(layout, "a", "b", upstream="managed")
    line = next(iter(AuditLog(layout, FakeClock(), operator()).last(1)))
    assert f"forked from a ({repo.guid})" in line.entry.detail
    assert line.entry.repo == AuditedRepo("b", forked.guid)
    break_log(layout)
    with pytest.raises(RdcError):
        rename(layout, "a", "c", FakeClock())
    with pytest.raises(RdcError):
        fork(layout, "a", "c", upstream="managed")
    assert RepoFiles(layout).names() == ("a", "b")
