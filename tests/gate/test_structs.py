"""Field tables: Go's key matching, what is dropped, and what is written."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from gate.core.kinds import BOOL, INT64, STRING, STRINGS, MismatchError, pointer, slice_of, wire
from gate.core.structs import fold, struct, wire_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    skip: bool = wire("Skip", BOOL)
    mask: int | None = wire("MaskedPaths", pointer(INT64))


INNER = struct(Inner, "Inner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Inner):
    name: str = wire("HostConfig", STRING)
    inner: Inner = wire("Inner", INNER)  # noqa: RUF009
    maybe: Inner | None = wire("Maybe", pointer(INNER))  # noqa: RUF009
    many: tuple[Inner, ...] | None = wire("Many", slice_of(INNER))
    names: tuple[str, ...] | None = wire("Names", STRINGS)


OUTER = struct(Outer, "Outer")


@pytest.mark.parametrize(
    "key",
    ["HostConfig", "hostconfig", "HOSTCONFIG", "hOSTcONFIG", "Ho\u017ftConfig", "ho\u017fTconfig"],
)
def test_every_spelling_that_go_matches(key: str) -> None:
    assert OUTER.read({key: "x"}, []) == Outer(name="x")


@pytest.mark.parametrize("key", ["Ma\u017fkedPaths", "Mas\u212aedPaths", "ma\u017f\u212aedpaths"])
def test_kelvin_and_long_s(key: str) -> None:
    assert OUTER.read({key: 3}, []).mask == 3


@pytest.mark.parametrize(
    "key",
    [
        "HostConfig ",
        "Host\u0130Config",
        "HostConf\u0131g",
        "\uff28ostConfig",
        "HoßtConfig",
        "Host_Config",
        "",
    ],
)
def test_no_spelling_that_go_does_not(key: str) -> None:
    dropped: list[str] = []
    assert OUTER.read({key: "x"}, dropped) == Outer()
    assert dropped == [f"Outer.{key}"]


@pytest.mark.parametrize(
    "value",
    [
        {"HostConfig": "a", "hostconfig": "b"},
        {"Ho\u017ftConfig": "a", "HostConfig": None},
        {"hostconfig": "a", "HOSTCONFIG": "a"},
        {"Inner": {"Skip": True, "skip": False}},
        {"Many": [{"S\u212aip": True, "Skip": True}]},
    ],
)
def test_two_keys_of_one_field_are_refused(value: dict[str, object]) -> None:
    with pytest.raises(MismatchError):
        OUTER.read(value, [])  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[], "x", 1, True, 1.5])
def test_a_struct_is_an_object(value: object) -> None:
    with pytest.raises(MismatchError):
        OUTER.read(value, [])  # type: ignore[arg-type]


def test_null_is_zero_for_a_struct_and_absent_for_a_pointer() -> None:
    assert OUTER.read({"Inner": None, "Maybe": None}, []) == Outer()
    assert OUTER.read(None, []) == Outer()
    assert OUTER.read({"Maybe": {}}, []).maybe == Inner()


def test_the_place_of_a_mismatch_is_told() -> None:
    with pytest.raises(MismatchError) as caught:
        OUTER.read({"many": [{}, {"Skip": 1}]}, [])
    assert caught.value.message == "Many[1].Skip must be true or false"


def test_unknown_values_may_not_be_deep() -> None:
    deep: object = 1
    for _ in range(40):
        deep = [deep]
    with pytest.raises(MalformedError):
        OUTER.read({"Unknown": deep}, [])  # type: ignore[dict-item]


def test_zero_is_left_out_and_empty_is_not() -> None:
    assert OUTER.to_json(Outer()) == {}
    assert OUTER.to_json(Outer(names=(), maybe=Inner(), many=(Inner(skip=True),))) == {
        "Maybe": {},
        "Many": [{"Skip": True}],
        "Names": [],
    }


def test_names_include_inherited_ones() -> None:
    assert wire_names(Outer)[:2] == ("Skip", "MaskedPaths")


def test_a_table_with_two_equal_names_is_a_mistake() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Twice:
        one: str = wire("Key", STRING)
        two: str = wire("key", STRING)

    with pytest.raises(ValueError, match="fold"):
        struct(Twice, "Twice")


@given(st.text(max_size=12))
def test_fold_is_idempotent_and_no_more_than_case(key: str) -> None:
    assert fold(fold(key)) == fold(key)
    assert len(fold(key)) == len(key)
    assert fold(key).casefold() == key.casefold() or not key.isascii()


inners = st.builds(Inner, skip=st.booleans(), mask=st.none() | st.integers(-5, 5))


@given(
    st.builds(
        Outer,
        skip=st.booleans(),
        name=st.text(max_size=5),
        inner=inners,
        maybe=st.none() | inners,
        many=st.none() | st.lists(inners, max_size=3).map(tuple),
        names=st.none() | st.lists(st.text(max_size=3), max_size=3).map(tuple),
    )
)
def test_written_reads_back(value: Outer) -> None:
    assert OUTER.read(OUTER.to_json(value), []) == value
