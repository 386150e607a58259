"""Go's kinds, as its decoder treats them."""

import pytest

from base.errors import MalformedError
from gate.core.docker_json import Json
from gate.core.kinds import (
    BOOL,
    EMPTY,
    INT64,
    MAX_ENTRIES,
    MAX_ITEMS,
    PRESENCE,
    SET,
    SIZE,
    STR_SLICE,
    STRING,
    STRING_LISTS,
    STRING_MAP,
    STRINGS,
    UINT16,
    UINT64,
    Go,
    MismatchError,
    at_most,
    map_of,
    pointer,
    slice_of,
)

READS: list[tuple[Go, Json, object]] = [  # type: ignore[type-arg]
    (STRING, "a", "a"),
    (STRING, None, ""),
    (BOOL, True, True),
    (BOOL, None, False),
    (INT64, -(2**63), -(2**63)),
    (INT64, 2**63 - 1, 2**63 - 1),
    (INT64, None, 0),
    (UINT16, 65535, 65535),
    (UINT64, 2**64 - 1, 2**64 - 1),
    (pointer(BOOL), None, None),
    (pointer(BOOL), False, False),
    (STRINGS, None, None),
    (STRINGS, [], ()),
    (STRINGS, ["a", None], ("a", "")),
    (STR_SLICE, "echo", ("echo",)),
    (STR_SLICE, ["a"], ("a",)),
    (STR_SLICE, None, None),
    (STRING_LISTS, [["a"], None], (("a",), None)),
    (STRING_MAP, {"A": "b", "a": None}, {"A": "b", "a": ""}),
    (STRING_MAP, None, None),
    (SET, {"80/tcp": {}, "81/tcp": None}, {"80/tcp": None, "81/tcp": None}),
    (SIZE, None, (0, 0)),
    (SIZE, [], (0, 0)),
    (SIZE, [5], (5, 0)),
    (SIZE, [5, 6], (5, 6)),
    (PRESENCE, None, False),
    (PRESENCE, {}, True),
    (map_of(slice_of(STRING)), {"a": None, "b": []}, {"a": None, "b": ()}),
]


@pytest.mark.parametrize(("kind", "value", "expected"), READS)
def test_read(kind: Go, value: Json, expected: object) -> None:  # type: ignore[type-arg]
    found = kind.read(value, [])
    assert found == expected
    assert type(found) is type(expected) or isinstance(expected, dict)


REFUSED: list[tuple[Go, Json]] = [  # type: ignore[type-arg]
    (STRING, 1), (STRING, True), (STRING, ["a"]), (STRING, {}),
    (BOOL, 0), (BOOL, 1), (BOOL, "true"), (BOOL, []),
    (INT64, True), (INT64, 1.0), (INT64, "1"), (INT64, 2**63), (INT64, -(2**63) - 1), (INT64, 1e3),
    (UINT16, -1), (UINT16, 65536), (UINT64, 2**64), (UINT64, -1),
    (STRINGS, "a"), (STRINGS, {}), (STRINGS, [1]), (STRINGS, ["a", ["b"]]),
    (STR_SLICE, 1), (STR_SLICE, {"0": "a"}), (STRING_MAP, []), (STRING_MAP, {"a": 1}), (STRING_MAP, "a"),
    (SET, {"a": 1}), (SET, {"a": "x"}), (EMPTY, []), (SIZE, [1, 2, 3]), (SIZE, [-1, 0]), (SIZE, "a"),
    (slice_of(STRING, null_elements=False), [None]), (pointer(INT64), "1"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_refused(kind: Go, value: Json) -> None:  # type: ignore[type-arg]
    with pytest.raises(MismatchError):
        kind.read(value, [])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (STRINGS, ("a",), ["a"]),
        (STRINGS, (), []),
        (STRING_LISTS, (("a",), None), [["a"], None]),
        (SET, {"80/tcp": None}, {"80/tcp": {}}),
        (SIZE, (1, 2), [1, 2]),
        (pointer(STRINGS), None, None),
    ],
)
def test_write(kind: Go, value: object, expected: object) -> None:  # type: ignore[type-arg]
    def lists(item: object) -> object:
        if isinstance(item, list | tuple):
            return [lists(inner) for inner in item]
        return item

    assert lists(kind.to_json(value)) == expected


def test_unknown_keys_of_an_empty_struct_are_named() -> None:
    dropped: list[str] = []
    SET.read({"80/tcp": {"x": 1}}, dropped)
    assert dropped == ["x"]


@pytest.mark.parametrize("kind", [SET, PRESENCE])
def test_values_that_are_dropped_may_not_be_deep(kind: Go) -> None:  # type: ignore[type-arg]
    deep: Json = {}
    for _ in range(40):
        deep = {"x": deep}
    with pytest.raises(MalformedError):
        kind.read(deep, [])


def test_lists_of_objects_are_bounded_and_lists_of_strings_are_not() -> None:
    assert len(slice_of(EMPTY).read([{}] * MAX_ITEMS, []) or ()) == MAX_ITEMS
    with pytest.raises(MismatchError, match="at most 1024 elements"):
        slice_of(EMPTY).read([{}] * (MAX_ITEMS + 1), [])
    assert len(STRINGS.read(["x"] * (MAX_ITEMS + 1), []) or ()) == MAX_ITEMS + 1


def test_maps_and_device_lists_are_bounded() -> None:
    shaped = map_of(slice_of(EMPTY))
    assert len(shaped.read({str(number): [] for number in range(MAX_ENTRIES)}, []) or ()) == MAX_ENTRIES
    with pytest.raises(MismatchError):
        shaped.read({str(number): [] for number in range(MAX_ENTRIES + 1)}, [])
    names = at_most(2, STRINGS)
    assert names.read(["a", "b"], []) == ("a", "b")
    assert names.read(None, []) is None
    with pytest.raises(MismatchError):
        names.read(["a", "b", "c"], [])
