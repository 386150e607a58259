from pathlib import Path

import pytest

from base.errors import NotFoundError, RefusedError, UsageError
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
    keeps_daemons,
    up_lock,
    upstream_socket,
)


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
