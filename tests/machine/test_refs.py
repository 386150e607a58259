import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import NotFoundError, UsageError
from machine.core.refs import RepoRef, candidates_for, require_local, unknown_repo

GUID = "6af613b6-569c-4c22-9c37-2ed93f31d3af"


@pytest.mark.parametrize(
    ("text", "name", "machine"),
    [
        ("gpu-a", "gpu-a", None),
        ("gpu-a@local", "gpu-a", "local"),
        ("a@gpu1.example", "a", "gpu1.example"),
        (GUID, GUID, None),
    ],
)
def test_refs_are_read(text: str, name: str, machine: str | None) -> None:
    ref = RepoRef.parse(text)
    assert (ref.name, ref.machine) == (name, machine)
    assert str(ref) == text


@pytest.mark.parametrize("text", ["", "@", "@local", "a@", "a@b@c", "a@-b", "a@b c", "a@b/c"])
def test_malformed_refs_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        RepoRef.parse(text)


@given(st.text())
def test_parsing_is_total_and_printing_undoes_it(text: str) -> None:
    try:
        ref = RepoRef.parse(text)
    except UsageError:
        return
    assert str(ref) == text


def test_guids_are_told_from_names() -> None:
    assert RepoRef.parse(GUID).is_guid
    assert not RepoRef.parse(GUID.upper()).is_guid
    assert not RepoRef.parse("gpu-a").is_guid


@pytest.mark.parametrize("text", ["a", "a@local"])
def test_this_machine_is_accepted(text: str) -> None:
    require_local(RepoRef.parse(text), ["a"])


def test_another_machine_is_not_found_and_candidates_are_listed() -> None:
    with pytest.raises(NotFoundError) as caught:
        require_local(RepoRef.parse("gpu-a@lab"), ["gpu-a", "gpu-b"])
    assert "gpu-a@local" in caught.value.hint
    with pytest.raises(NotFoundError):
        require_local(RepoRef.parse("x@lab"), [])


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("a", ["a", "ab"], ("a@local",)),
        ("gpu-aa", ["gpu-a", "zzz"], ("gpu-a@local",)),
        ("gpu", ["zzz"], ()),
    ],
)
def test_candidates(name: str, names: list[str], expected: tuple[str, ...]) -> None:
    assert candidates_for(name, names) == expected


def test_an_unknown_repo_names_near_ones_or_how_to_go_on() -> None:
    assert "gpu-a@local" in unknown_repo("gpu-aa", ["gpu-a"]).hint
    assert "rdc repo list" in unknown_repo("xyz", ["gpu-a"]).hint
    assert "rdc repo create xyz" in unknown_repo("xyz", []).hint
