"""Repos as files: one broken file is nobody else's problem."""

from dataclasses import replace
from pathlib import Path

import pytest

from base.errors import DamagedError, MalformedError, NotFoundError, RefusedError, UsageError
from base.layout import Layout
from gate.core.repo import GateConfig, RepoConfig, RepoName, RepoPolicy
from gate.repos import RepoFiles

ALPHA = RepoConfig(name=RepoName("alpha"), guid="aaaaaaaa-0000-4000-8000-000000000001")
BETA = RepoConfig(name=RepoName("beta"), guid="aaaaaaaa-0000-4000-8000-000000000002")


@pytest.fixture
def files(tmp_path: Path) -> RepoFiles:
    files = RepoFiles(Layout(tmp_path))
    files.save(ALPHA)
    files.save(BETA)
    return files


def repos_dir(tmp_path: Path) -> Path:
    return Layout(tmp_path).repos_dir


def test_saved_is_listed(files: RepoFiles) -> None:
    listing = files.list()
    assert (listing.repos, dict(listing.problems)) == ((ALPHA, BETA), {})
    assert listing.by_guid(BETA.guid) == BETA
    assert listing.by_guid("nobody") is None


def test_an_empty_machine(tmp_path: Path) -> None:
    assert RepoFiles(Layout(tmp_path)).list().repos == ()


@pytest.mark.parametrize("ref", ["alpha", "alpha@local", ALPHA.guid, ALPHA.guid + "@local", ALPHA.guid[:36]])
def test_find(files: RepoFiles, ref: str) -> None:
    assert files.find(ref) == ALPHA


@pytest.mark.parametrize(
    ("ref", "error"),
    [
        ("alpha@other", UsageError),
        ("aaaaaaaa", UsageError),
        ("gamma", NotFoundError),
        ("aaaa", NotFoundError),
        ("../alpha", MalformedError),
        ("", MalformedError),
    ],
)
def test_no_guess(files: RepoFiles, ref: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        files.find(ref)


def test_an_ambiguous_ref_lists_its_candidates(files: RepoFiles) -> None:
    with pytest.raises(UsageError) as caught:
        files.find("aaaaaaaa-0000")
    assert "alpha" in caught.value.hint
    assert "beta" in caught.value.hint


def test_a_name_that_is_anothers_guid_is_ambiguous(files: RepoFiles) -> None:
    files.save(RepoConfig(name=RepoName(ALPHA.guid), guid="bbbbbbbb-0000-4000-8000-000000000003"))
    with pytest.raises(UsageError):
        files.find(ALPHA.guid)


def test_a_broken_file_stops_nobody_else(files: RepoFiles, tmp_path: Path) -> None:
    broken = repos_dir(tmp_path) / "broken.yaml"
    broken.write_text("schema_version: 1\nname: [")
    (repos_dir(tmp_path) / "wrong.yaml").write_bytes(
        replace(ALPHA, name=RepoName("right"), guid="g").to_yaml()
    )
    (repos_dir(tmp_path) / "folder.yaml").mkdir()
    (repos_dir(tmp_path) / ".alpha.yaml.0123.tmp").write_text("x")
    (repos_dir(tmp_path) / "notes.txt").write_text("x")
    listing = files.list()
    assert listing.repos == (ALPHA, BETA)
    assert {path.name for path in listing.problems} == {"broken.yaml", "wrong.yaml", "folder.yaml"}
    with pytest.raises(MalformedError):
        files.find("broken")


def test_two_files_with_one_guid_are_both_out(files: RepoFiles, tmp_path: Path) -> None:
    copy = replace(BETA, name=RepoName("copy"))
    (repos_dir(tmp_path) / "copy.yaml").write_bytes(copy.to_yaml())
    listing = files.list()
    assert listing.repos == (ALPHA,)
    assert {path.name for path in listing.problems} == {"beta.yaml", "copy.yaml"}
    with pytest.raises(DamagedError):
        files.find("beta")


def test_nothing_is_overwritten_unasked(files: RepoFiles) -> None:
    changed = replace(ALPHA, policy=RepoPolicy(network_host=True))
    with pytest.raises(RefusedError):
        files.save(changed)
    files.save(changed, replace=True)
    assert files.find("alpha") == changed


def test_a_guid_names_one_repo(files: RepoFiles) -> None:
    with pytest.raises(RefusedError):
        files.save(replace(BETA, name=RepoName("gamma")))


def test_delete(files: RepoFiles) -> None:
    files.delete(ALPHA.name)
    files.delete(ALPHA.name)
    assert files.list().repos == (BETA,)


def test_fingerprint_changes_with_the_files(files: RepoFiles) -> None:
    before = files.fingerprint()
    assert files.fingerprint() == before
    files.save(ALPHA, replace=True)
    after = files.fingerprint()
    assert after != before
    files.delete(ALPHA.name)
    assert files.fingerprint() != after


def test_gate_config(files: RepoFiles, tmp_path: Path) -> None:
    assert files.gate_config() == GateConfig()
    Layout(tmp_path).gate_config.write_text("schema_version: 1\nprotected_paths: [/srv/x]\n")
    assert files.gate_config().protected_paths == ("/srv/x",)
    Layout(tmp_path).gate_config.write_text("schema_version: 9\n")
    with pytest.raises(MalformedError):
        files.gate_config()
