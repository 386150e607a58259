from dataclasses import replace
from pathlib import Path

import pytest

from base.errors import MalformedError, NotFoundError, RefusedError, UsageError
from base.layout import Layout
from base.run_lock import held
from gate.core.repo import Trust
from gate.repos import RepoFiles
from grants.core.model import RepoGuid
from machine.repos import (
    NewRepo,
    RepoExistsError,
    RepoNames,
    create,
    find,
    fork,
    keeps_daemons,
    up_lock,
    upstream_socket,
)
from tests.fake_daemon import fake_daemon

RUNNING = (
    "GET /containers/json?filters=%7B%22status%22%3A%5B%22running%22%2C%22paused%22%2C%22restarting%22%5D%7D"
)


def running(name: str, host: dict[str, object]) -> tuple[int, object]:
    state = {"Running": True, "StartedAt": "2026-12-04T10:00:00Z"}
    return 200, {"Id": name, "Name": f"/{name}", "HostConfig": host, "State": state}


@pytest.fixture
def layout(short_dir: Path) -> Layout:
    return Layout(short_dir)


def test_a_repo_is_its_file(layout: Layout) -> None:
    made = create(layout, NewRepo(name="a", trust=Trust.STRANGER))
    assert RepoFiles(layout).read(made.name) == made
    assert find(layout, "a") == find(layout, "a@local") == find(layout, made.guid) == made
    assert layout.repo(made.guid).cdi_spec_dir.is_dir()


def test_each_repo_has_an_identity_of_its_own_also_under_an_old_name(layout: Layout) -> None:
    first = create(layout, NewRepo(name="a"))
    RepoFiles(layout).delete(first.name)
    assert create(layout, NewRepo(name="a")).guid != first.guid


def test_a_taken_name_leaves_everything_as_it_is(layout: Layout) -> None:
    made = create(layout, NewRepo(name="a"))
    with pytest.raises(RepoExistsError):
        create(layout, NewRepo(name="a", trust=Trust.STRANGER))
    assert find(layout, "a") == made


def test_upstreams(layout: Layout) -> None:
    own = create(layout, NewRepo(name="own"))
    foreign = create(layout, NewRepo(name="foreign", upstream="unix:///tmp/x/../d.sock"))
    assert upstream_socket(layout, own) == layout.repo(own.guid).daemon_socket
    assert upstream_socket(layout, foreign) == Path("/tmp/d.sock")
    with pytest.raises(RefusedError):
        create(layout, NewRepo(name="third", upstream="unix:///tmp/d.sock"))
    with pytest.raises(UsageError):
        create(layout, NewRepo(name="third", upstream=f"unix://{layout.repo(own.guid).socket}"))


def test_a_daemon_whose_containers_hold_hardware_is_not_taken_over_unasked(layout: Layout) -> None:
    """The gate would stop them, granted nothing as a new repo is."""
    held = {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]}
    answers: dict[str, tuple[int, object]] = {
        RUNNING: (200, [{"Id": "train"}, {"Id": "web"}]),
        "GET /containers/train/json": running("train", held),
        "GET /containers/web/json": running("web", {}),
    }
    new = NewRepo(name="a", upstream=f"unix://{layout.root}/d.sock")
    with fake_daemon(layout.root / "d.sock", answers):
        with pytest.raises(RefusedError) as refused:
            create(layout, new)
        assert "train: nvidia.com/gpu=0" in refused.value.message
        assert "web" not in refused.value.message
        assert RepoFiles(layout).names() == ()
        made = create(layout, replace(new, stop_holders=True))
        assert RepoFiles(layout).names() == (made.name,)


def test_a_daemon_without_holders_is_taken_over(layout: Layout) -> None:
    answers: dict[str, tuple[int, object]] = {
        RUNNING: (200, [{"Id": "web"}]),
        "GET /containers/web/json": running("web", {}),
    }
    with fake_daemon(layout.root / "d.sock", answers):
        create(layout, NewRepo(name="a", upstream=f"unix://{layout.root}/d.sock"))


def test_a_root_where_nothing_was_set_up_is_told(layout: Layout) -> None:
    with pytest.raises(NotFoundError) as missing:
        find(layout, "a")
    assert str(layout.root) in missing.value.message
    assert "--root" in missing.value.hint


def test_a_ref_is_never_guessed(layout: Layout) -> None:
    create(layout, NewRepo(name="gpu-a"))
    for ref in ("gpu", "GPU-A", "gpu-a@other", "00000000-0000-4000-8000-000000000000"):
        with pytest.raises(NotFoundError):
            find(layout, ref)


def test_names_are_read_when_they_are_asked_for(layout: Layout) -> None:
    names = RepoNames(layout)
    made = create(layout, NewRepo(name="a"))
    assert dict(names) == {RepoGuid(made.guid): "a"}
    assert len(names) == 1
    assert names.get(RepoGuid("none"), "?") == "?"


def test_who_keeps_daemons_is_seen(layout: Layout) -> None:
    assert not keeps_daemons(layout)
    layout.run_dir.mkdir(parents=True)
    with held(up_lock(layout), "up"):
        assert keeps_daemons(layout)
    assert not keeps_daemons(layout)


def test_a_repo_that_was_read_is_named_without_reading_the_others(layout: Layout) -> None:
    known = create(layout, NewRepo(name="known"))
    names = RepoNames(layout)
    names.learn(known)
    (layout.repos_dir / "known.yaml").unlink()
    assert names[RepoGuid(known.guid)] == "known"
    assert names.get(RepoGuid("unknown-guid")) is None


def test_a_fork_has_the_configuration_and_nothing_else(layout: Layout) -> None:
    (layout.root / "data").mkdir()
    first = create(
        layout,
        NewRepo(name="a", bind_roots=(str(layout.root / "data"),), group="root", trust=Trust.STRANGER),
    )
    path = RepoFiles(layout).path("a")
    path.write_text(path.read_text().replace("network_host: false", "network_host: true  # for the registry"))
    forked = fork(layout, "a", "b")
    assert forked.guid != first.guid
    assert forked == replace(find(layout, "a"), name=forked.name, guid=forked.guid)
    assert forked.policy.network_host
    assert "# for the registry" in RepoFiles(layout).path("b").read_text()
    assert find(layout, forked.guid) == forked
    assert not list(layout.repo(forked.guid).cdi_spec_dir.iterdir())


def test_a_fork_never_shares_a_daemon(layout: Layout) -> None:
    create(layout, NewRepo(name="a", upstream=f"unix://{layout.root}/a.sock"))
    for upstream in (None, f"unix://{layout.root}/a.sock"):
        with pytest.raises(RefusedError):
            fork(layout, "a", "b", upstream=upstream)
    assert fork(layout, "a", "b", upstream="managed").managed
    assert fork(layout, "b", "c", upstream=f"unix://{layout.root}/c.sock").upstream == f"{layout.root}/c.sock"
    assert fork(layout, "c", "d", upstream=f"unix://{layout.root}/d.sock").upstream == f"{layout.root}/d.sock"


def test_what_cannot_be_forked(layout: Layout) -> None:
    create(layout, NewRepo(name="a"))
    with pytest.raises(RepoExistsError):
        fork(layout, "a", "a")
    with pytest.raises(NotFoundError):
        fork(layout, "b", "c")
    for name, upstream in (("b@local", None), ("b", "tcp://1.2.3.4:5"), ("b", "")):
        with pytest.raises(UsageError):
            fork(layout, "a", name, upstream=upstream)
    RepoFiles(layout).path("a").write_text("{")
    with pytest.raises(MalformedError):
        fork(layout, "a", "b")
    assert RepoFiles(layout).names() == ("a",)
