"""Field tables compiled: Go's way of matching keys to struct fields, both ways. Pure.

Source: Go's encoding/json as driven with raw bytes (facts page on gates, section 3.1). Written for speed: a
create body has 130 fields and is read and written on every `docker run`, so that a table becomes closures
once, and instances are filled through their slots, without the frozen class's constructor.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import TypeVar, cast

from gate.core.docker_json import Json, check_depth
from gate.core.kinds import Dropped, Go, MismatchError, Read

T = TypeVar("T")
_Entry = tuple[int, str, Read[object]]


def fold(key: str) -> str:
    """A key as Go compares it: equal folds mean the same field.

    Only ASCII letters and the two characters that Unicode folds onto ASCII ones; `str.casefold` does more.
    """
    return key.replace("\u017f", "s").replace("\u212a", "k").translate(_ASCII_LOWER)


_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def wire_names(cls: type[object]) -> tuple[str, ...]:
    """The names on the wire of a field table's fields."""
    return tuple(item.metadata["wire"] for item in fields(cls))  # type: ignore[arg-type]  # a dataclass


def struct(cls: type[T], label: str) -> Go[T]:
    """The kind of a field table; `label` names it where an unknown key is reported."""
    items = fields(cls)  # type: ignore[arg-type]  # every T here is a dataclass
    kinds: list[Go[object]] = [item.metadata["kind"] for item in items]
    attributes = [item.name for item in items]
    table = _Table(label, wire_names(cls), kinds)
    return Go(_reader(cls, table, _filler(cls, attributes)), cls(), _writer(table, attributes))


class _Table:
    """A field table's wire side."""

    def __init__(self, label: str, names: tuple[str, ...], kinds: list[Go[object]]) -> None:
        self.label = label
        self.names = names
        self.kinds = kinds
        entries = [(index, name, kinds[index].read) for index, name in enumerate(names)]
        self.exact: dict[str, _Entry] = {entry[1]: entry for entry in entries}
        self.folded: dict[str, _Entry] = {fold(entry[1]): entry for entry in entries}
        if len(self.folded) != len(entries):
            raise ValueError(f"two fields of {label} fold to one")

    def read_odd(self, value: Mapping[str, Json], found: list[object], dropped: Dropped) -> None:
        """The keys not spelled as a field is: other spellings are read, unknown keys dropped and named.

        Raises:
            MismatchError: two keys are one field to Go, which would merge them.
        """
        for key, item in value.items():
            if key in self.exact:
                continue
            entry = self.folded.get(fold(key))
            if entry is not None:
                _read_field(entry, item, found, dropped)
            else:
                check_depth(item)
                dropped.append(f"{self.label}.{key}")
        known = [spelled for key in value if (spelled := fold(key)) in self.folded]
        if len(set(known)) != len(known):
            raise MismatchError(f" has two keys that mean the same field of {self.label}")


def _reader(cls: type[T], table: _Table, fill: Callable[[list[object]], T]) -> Read[T]:
    exact, zeros, zero = table.exact.get, [kind.zero for kind in table.kinds], cls()

    def read(value: Json, dropped: Dropped) -> T:
        if value is None:
            return zero
        if type(value) is not dict:
            raise MismatchError(" must be an object")
        found = zeros.copy()
        exactly = True
        for key, item in value.items():
            entry = exact(key)
            if entry is None:
                exactly = False
            elif item is not None:  # null is the zero value of every kind
                _read_field(entry, item, found, dropped)
        if not exactly:
            table.read_odd(value, found, dropped)
        return fill(found)

    return read


def _read_field(entry: _Entry, item: Json, found: list[object], dropped: Dropped) -> None:
    index, name, read = entry
    try:
        found[index] = read(item, dropped)
    except MismatchError as exc:
        raise exc.at(name) from exc


def _filler(cls: type[T], attributes: list[str]) -> Callable[[list[object]], T]:
    """Makes an instance from its fields' values in order."""
    setters = [getattr(cls, name).__set__ for name in attributes]
    new = cls.__new__

    def fill(found: list[object]) -> T:
        made = new(cls)
        for setter, value in zip(setters, found, strict=True):
            setter(made, value)
        return made

    return fill


def _writer(table: _Table, attributes: list[str]) -> Callable[[T], Json]:
    plan = [(name, kind.zero, kind.write) for name, kind in zip(table.names, table.kinds, strict=True)]
    values_of = _values_of(attributes)

    def write(value: T) -> Json:
        out: dict[str, Json] = {}
        for item, (name, zero, write_field) in zip(values_of(value), plan, strict=True):
            if item is zero or item == zero:
                continue
            out[name] = cast("Json", item) if write_field is None else write_field(item)
        return out

    return write


def _values_of(attributes: list[str]) -> Callable[[object], tuple[object, ...]]:
    """All attributes of an object at once."""
    if len(attributes) > 1:
        return cast("Callable[[object], tuple[object, ...]]", attrgetter(*attributes))
    return lambda value: tuple(getattr(value, name) for name in attributes)
