"""Go's kinds: how dockerd's decoder turns JSON into typed fields, and how the gate writes them back. Pure.

Source: Go's encoding/json as driven with raw bytes (facts page on gates, section 3.1). A field table is a
frozen dataclass whose fields are made with `wire`; `structs.struct` compiles it into a reader and a writer.
What was read is all that is written: unknown keys are dropped and named, absent and zero values are left out.

- Field names match by Go's folding: ASCII case, and U+017F for S, U+212A for K. Two keys of one object that
  fold to the same field are refused, because Go would merge them.
- `null` gives the zero value of a bool, integer, string or struct, and None of a pointer, slice or map.
- Integers have Go's ranges and no fraction or exponent; booleans are not integers.
- Data keys of maps are never folded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar, cast

from base.errors import MalformedError
from gate.core.docker_json import Json, check_depth

MAX_ITEMS = 1024
"""Most objects of one list. Each costs microseconds of everybody's gate, and nobody mounts that much."""

MAX_ENTRIES = 8192
"""Most entries of one map whose values have a shape of their own: published ports come in ranges."""

T = TypeVar("T")
Dropped = list[str]
Read = Callable[[Json, Dropped], T]
Write = Callable[[T], Json]


@dataclass(frozen=True, slots=True)
class Go(Generic[T]):
    """One kind: its reader, its zero value, its writer (None where the value is its own JSON).

    `plain` are the Python types that are read as they are, so that lists of them are read at once.
    """

    read: Read[T]
    zero: T
    write: Write[T] | None = None
    plain: frozenset[type] | None = None

    def to_json(self, value: T) -> Json:
        """The value as JSON."""
        return cast("Json", value) if self.write is None else self.write(value)


class MismatchError(MalformedError):
    """A value of the wrong kind; its place is put in front on the way out."""

    def at(self, place: str) -> "MismatchError":
        """The same complaint, one level further out."""
        separator = "" if self.message.startswith(("[", " ")) else "."
        return MismatchError(f"{place}{separator}{self.message}")


def wire(name: str, kind: Go[T]) -> T:
    """A dataclass field that is `name` on the wire, with the kind's zero value as its default."""
    found: T = field(default=kind.zero, metadata={"wire": name, "kind": kind})
    return found


def _read_string(value: Json, _dropped: Dropped) -> str:
    if type(value) is str:
        return value
    if value is None:
        return ""
    raise MismatchError(" must be a string")


def _read_bool(value: Json, _dropped: Dropped) -> bool:
    if value is True or value is False:
        return value
    if value is None:
        return False
    raise MismatchError(" must be true or false")


def integer(bits: int, *, signed: bool = True) -> Go[int]:
    """A Go integer of that many bits."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def read(value: Json, _dropped: Dropped) -> int:
        if type(value) is int:
            if low <= value <= high:
                return value
            raise MismatchError(f" must be between {low} and {high}")
        if value is None:
            return 0
        raise MismatchError(" must be a whole number without fraction or exponent")

    return Go(read, 0)


STRING = Go(_read_string, "", plain=frozenset({str}))
BOOL = Go(_read_bool, False)
INT64 = integer(64)
UINT16 = integer(16, signed=False)
UINT32 = integer(32, signed=False)
UINT64 = integer(64, signed=False)


def pointer(kind: Go[T]) -> Go[T | None]:
    """`*T`: null and absent are None, which is not the same as zero."""
    inner = kind.read

    def read(value: Json, dropped: Dropped) -> T | None:
        return None if value is None else inner(value, dropped)

    write = kind.write

    def write_pointer(value: T | None) -> Json:
        return None if value is None or write is None else write(value)

    return Go(read, None, None if write is None else write_pointer)


def slice_of(kind: Go[T], *, null_elements: bool = True) -> Go[tuple[T, ...] | None]:
    """`[]T`: null and absent are None, which is not the same as empty.

    `null_elements` is False for slices of pointers, in which a null would be a nil pointer to the daemon.
    """
    inner = kind.read
    plain = kind.plain

    def read(value: Json, dropped: Dropped) -> tuple[T, ...] | None:
        if value is None:
            return None
        if type(value) is not list:
            raise MismatchError(" must be a list")
        if plain is not None and plain.issuperset(map(type, value)):
            return tuple(value)
        if len(value) > MAX_ITEMS:
            raise MismatchError(f" must have at most {MAX_ITEMS} elements")
        found = []
        for index, item in enumerate(value):
            if item is None and not null_elements:
                raise MismatchError(f"[{index}] must not be null")
            try:
                found.append(inner(item, dropped))
            except MismatchError as exc:
                raise exc.at(f"[{index}]") from exc
        return tuple(found)

    return Go(read, None, _slice_writer(kind))


def _slice_writer(kind: Go[T]) -> Write[tuple[T, ...] | None]:
    write_item = kind.write

    def write(value: tuple[T, ...] | None) -> Json:
        if value is None:
            return None
        if write_item is None:
            return list(value)  # type: ignore[arg-type]  # plain values are their own JSON
        return [write_item(item) for item in value]

    return write


def at_most(limit: int, kind: Go[tuple[T, ...] | None]) -> Go[tuple[T, ...] | None]:
    """The same list, refused where it has more elements than this."""

    def read(value: Json, dropped: Dropped) -> tuple[T, ...] | None:
        if type(value) is list and len(value) > limit:
            raise MismatchError(f" must have at most {limit} elements")
        return kind.read(value, dropped)

    return Go(read, kind.zero, kind.write)


def map_of(kind: Go[T], *, null_values: bool = True) -> Go[Mapping[str, T] | None]:
    """`map[string]T`: null and absent are None; keys are data and keep their case.

    `null_values` is False for maps of pointers, in which a null would be a nil pointer to the daemon.
    """
    inner = kind.read
    plain = kind.plain

    def read(value: Json, dropped: Dropped) -> Mapping[str, T] | None:
        if value is None:
            return None
        if type(value) is not dict:
            raise MismatchError(" must be an object")
        if plain is not None and plain.issuperset(map(type, value.values())):
            return MappingProxyType(value)
        if len(value) > MAX_ENTRIES:
            raise MismatchError(f" must have at most {MAX_ENTRIES} entries")
        found = {}
        if not null_values and None in value.values():
            raise MismatchError(" must not have null in it")
        for key, item in value.items():
            try:
                found[key] = inner(item, dropped)
            except MismatchError as exc:
                raise exc.at(f"[{key[:80]}]") from exc
        return MappingProxyType(found)

    return Go(read, None, _map_writer(kind))


def _map_writer(kind: Go[T]) -> Write[Mapping[str, T] | None]:
    write_item = kind.write

    def write(value: Mapping[str, T] | None) -> Json:
        if value is None:
            return None
        if write_item is None:
            return dict(value)  # type: ignore[arg-type]  # plain values are their own JSON
        return {key: write_item(item) for key, item in value.items()}

    return write


def _read_str_slice(value: Json, dropped: Dropped) -> tuple[str, ...] | None:
    """Docker's StrSlice: engines up to 28 take a bare string for a list of one."""
    return (value,) if type(value) is str else STRINGS.read(value, dropped)


def _read_empty(value: Json, dropped: Dropped) -> None:
    """`struct{}`: an object whose keys mean nothing."""
    if value is not None and type(value) is not dict:
        raise MismatchError(" must be an object")
    if value:
        check_depth(value)
        dropped.extend(cast("dict[str, Json]", value))


def _read_size(value: Json, dropped: Dropped) -> tuple[int, int]:
    """`[2]uint`: short arrays are filled with zeros."""
    found = _UINTS.read(value, dropped) or ()
    if len(found) > 2:
        raise MismatchError(" must have two elements")
    height, width = (*found, 0, 0)[:2]
    return height, width


def _read_presence(value: Json, _dropped: Dropped) -> bool:
    check_depth(value)
    return value is not None


PRESENCE = Go(_read_presence, False)
"""Whether something is there at all, for fields that are refused whatever they hold."""

_UINTS = slice_of(UINT64)
STRINGS = slice_of(STRING)
STRING_LISTS = slice_of(STRINGS)
STR_SLICE: Go[tuple[str, ...] | None] = Go(_read_str_slice, None, STRINGS.write)
STRING_MAP = map_of(STRING)
EMPTY: Go[None] = Go(_read_empty, None, lambda _value: {})
SET = map_of(EMPTY)
SIZE: Go[tuple[int, int]] = Go(_read_size, (0, 0), list)
