import dataclasses
from pathlib import Path

import pytest

from base.errors import MalformedError, NotFoundError, UsageError
from base.layout import Layout
from gate import repos as gate_repos
from gate.audit import AuditLog
from gate.core.audit_chain import Event
from gate.core.repo import RepoConfig
from gate.repos import RepoFiles
from machine.journal import operator
from machine.renaming import rename
from machine.repos import NewRepo, RepoExistsError, create, find
from tests.fake_clock import FakeClock


@pytest.fixture
def layout(short_dir: Path) -> Layout:
    return Layout(short_dir)


@pytest.fixture
def repo(layout: Layout) -> RepoConfig:
    return create(layout, NewRepo(name="a"))


def events(layout: Layout) -> list[tuple[str, str, str]]:
    log = AuditLog(layout, FakeClock(), operator())
    told = (each.entry for each in log.records())
    return [(each.event, each.repo.name, each.subject) for each in told if each.repo is not None]


@pytest.mark.parametrize("by", ["a", "a@local", "guid"])
def test_all_but_the_name_stays(layout: Layout, repo: RepoConfig, by: str) -> None:
    renamed = rename(layout, repo.guid if by == "guid" else by, "b", FakeClock())
    assert renamed == dataclasses.replace(repo, name=renamed.name)
    assert (find(layout, "b"), RepoFiles(layout).names()) == (renamed, ("b",))
    assert events(layout) == [("repo.created", "a", "a"), ("repo.renamed", "a", "b")]
    with pytest.raises(NotFoundError):
        find(layout, "a")
    create(layout, NewRepo(name="a"))


def test_what_an_operator_wrote_into_the_file_stays(layout: Layout, repo: RepoConfig) -> None:
    path = RepoFiles(layout).path("a")
    written = path.read_text() + "# not before Monday\n"
    path.write_text(written)
    rename(layout, "a", "b", FakeClock())
    assert RepoFiles(layout).path("b").read_text() == written.replace("name: a\n", "name: b\n")


def test_a_name_is_nobody_elses(layout: Layout, repo: RepoConfig) -> None:
    create(layout, NewRepo(name="b"))
    RepoFiles(layout).path("broken").write_text("{")
    for taken in ("a", "b", "broken"):
        with pytest.raises(RepoExistsError):
            rename(layout, "a", taken, FakeClock())
    for malformed in ("", "b@local", "x" * 33, "../b"):
        with pytest.raises(UsageError):
            rename(layout, "a", malformed, FakeClock())
    with pytest.raises(MalformedError):
        rename(layout, "broken", "c", FakeClock())
    assert find(layout, "a") == repo


class Cut(BaseException):
    """The machine loses power."""


@pytest.mark.parametrize("at", range(3))
def test_wherever_it_is_cut_off_there_is_one_repo(
    layout: Layout, repo: RepoConfig, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []

    def cut_at(step: object) -> None:
        if len(done) == at:
            raise Cut
        done.append(step)

    write, move = gate_repos.write_atomic, Path.rename

    def write_atomic(path: Path, data: bytes) -> None:
        cut_at(path)
        write(path, data)

    def rename_path(path: Path, target: Path) -> Path:
        cut_at(path)
        return move(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(gate_repos, "write_atomic", write_atomic)
        patch.setattr(Path, "rename", rename_path)
        with pytest.raises(Cut):
            rename(layout, "a", "b", FakeClock())
    listing = RepoFiles(layout).list()
    assert not listing.problems
    (left,) = listing.repos
    assert left == dataclasses.replace(repo, name=left.name)
    assert left.name == ("a" if at < 2 else "b")
    for name in ("c", "a", "b"):
        left = rename(layout, left.name, name, FakeClock())
        assert find(layout, name) == left
    assert "renaming" not in RepoFiles(layout).path("b").read_text()


def test_one_that_fails_is_told(layout: Layout, repo: RepoConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gate_repos, "write_atomic", full)
    with pytest.raises(OSError, match="space"):
        rename(layout, "a", "b", FakeClock())
    assert [event for event, _, _ in events(layout)][-2:] == [Event.REPO_RENAMED, Event.REPO_FAILED]
