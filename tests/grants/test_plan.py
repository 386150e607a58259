"""The order of steps, tried against CDI's directory rules after every single step."""

from collections import Counter
from collections.abc import Iterator, Mapping

from hypothesis import given
from hypothesis import strategies as st

from cdi.core.names import QualifiedName
from grants.core.plan import Remove, Rename, SpecFile, Write, plan

DEVICES = [QualifiedName("v.io", "cc", str(n)) for n in range(5)]


def spec_file(*devices: int, content: bytes | None = b"x") -> SpecFile:
    return SpecFile(content=content, devices=frozenset(DEVICES[n] for n in devices))


def resolvable(files: Mapping[str, SpecFile]) -> set[QualifiedName]:
    """Names that exactly one file defines."""
    counts = Counter(name for file in files.values() for name in file.devices)
    return {name for name, count in counts.items() if count == 1}


def states(
    present: Mapping[str, SpecFile], wanted: Mapping[str, SpecFile]
) -> Iterator[Mapping[str, SpecFile]]:
    """The directory before the first step and after each one."""
    files = dict(present)
    by_content = {file.content: file for file in wanted.values()}
    yield dict(files)
    for step in plan(present, wanted):
        match step:
            case Remove(name):
                del files[name]
            case Write(name, content):
                files[name] = by_content[content]
            case Rename(name, to):
                files[to] = files.pop(name)
        yield dict(files)


@st.composite
def directories(draw: st.DrawFn, prefix: str, disjoint: bool) -> dict[str, SpecFile]:
    names = draw(st.lists(st.sampled_from(["a.json", "b.json", "c.json", "d.json"]), unique=True))
    left = list(range(len(DEVICES)))
    files = {}
    for name in names:
        chosen = draw(st.sets(st.sampled_from(left))) if left else set()
        if disjoint:
            left = [n for n in left if n not in chosen]
        files[name] = spec_file(*chosen, content=f"{prefix} {name} {sorted(chosen)}".encode())
    return files


@given(directories("old", disjoint=True), directories("new", disjoint=True))
def test_in_between_nothing_unwanted_comes_and_the_end_is_right(
    present: dict[str, SpecFile], wanted: dict[str, SpecFile]
) -> None:
    before, after = resolvable(present), resolvable(wanted)
    seen = list(states(present, wanted))
    for files in seen:
        assert resolvable(files) <= before | after
    gone: set[QualifiedName] = set()
    for files in seen:
        assert not resolvable(files) & gone, "a name that was taken away came back"
        gone |= before - after - resolvable(files)
    assert seen[-1] == wanted


@given(directories("old", disjoint=True), directories("new", disjoint=True))
def test_a_name_that_stays_in_its_file_never_vanishes(
    present: dict[str, SpecFile], wanted: dict[str, SpecFile]
) -> None:
    stays = {
        name
        for file, held in present.items()
        for name in held.devices
        if file in wanted and name in wanted[file].devices
    }
    for files in states(present, wanted):
        assert stays <= resolvable(files)


@given(directories("same", disjoint=True))
def test_nothing_to_do_is_no_step(wanted: dict[str, SpecFile]) -> None:
    assert plan(dict(wanted), wanted) == ()


def test_when_a_file_gets_another_name_its_names_never_vanish() -> None:
    present = {"old.json": spec_file(0, 1, content=b"old"), "other.json": spec_file(4, content=b"gone")}
    wanted = {"new.json": spec_file(0, 1, 2, content=b"new")}
    for files in states(present, wanted):
        assert {DEVICES[0], DEVICES[1]} <= resolvable(files)
    assert plan(present, wanted) == (
        Remove("other.json"),
        Write("old.json", b"new"),
        Rename("old.json", "new.json"),
    )


def test_what_takes_away_comes_first() -> None:
    present = {
        "a": spec_file(0, content=b"a"),
        "b": spec_file(1, 2, content=b"b"),
        "c": spec_file(3, content=b"c"),
    }
    wanted = {
        "a": spec_file(0, 1, content=b"A"),
        "b": spec_file(2, content=b"B"),
        "d": spec_file(4, content=b"D"),
    }
    assert plan(present, wanted) == (Remove("c"), Write("b", b"B"), Write("a", b"A"), Write("d", b"D"))


def test_what_is_not_ours_is_replaced_whatever_it_holds() -> None:
    wanted = {"a.json": spec_file(0, content=b"a")}
    assert plan({"a.json": spec_file(0, content=None)}, wanted) == (Write("a.json", b"a"),)
