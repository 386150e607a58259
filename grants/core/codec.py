"""The grant store's document: bytes to table and back. Pure.

One JSON object, `schema_version` first, one line per repo, so that differences read well and twenty thousand
grants still load in tens of milliseconds. `grants/core/grants.schema.json` describes the same shape for
people and other programs; a test holds the two together. Strict: an unknown field, a repeated key, a second
spelling of an instant refuse the document, because whoever wrote them meant something that we would ignore.
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import jiter

from base.errors import MalformedError
from cdi.core.names import QualifiedName
from cdi.core.pin import Pin
from grants.core.model import (
    GRANTED_BY_MAX_CHARS,
    NOTE_MAX_CHARS,
    VRAM_MB_MAX,
    Isolation,
    RepoGuid,
    Sharing,
    parse_guid,
    parse_instant,
    text_problem,
)
from grants.core.table import GrantTable, PinId, Row

SCHEMA_VERSION: Final = 1
GENERATION_MAX: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exact (RFC 8259 section 6)."""

_FIELDS: Final = frozenset({"schema_version", "generation", "pins", "grants"})
_REQUIRED: Final = frozenset({"device", "pin", "sharing", "granted_at", "granted_by"})
_SHARINGS: Final = frozenset(sharing.value for sharing in Sharing)
_ISOLATIONS: Final = frozenset(isolation.value for isolation in Isolation)
_FRAME: Final = re.compile(
    rb'\{\n"schema_version":1,\n"generation":(0|[1-9][0-9]{0,15}),\n'
    rb'"pins":\{\n(.*?)\},\n"grants":\{\n(.*)\}\n\}\n',
    re.DOTALL,
)
"""A document as `encode` lays it out: generation, pins, grants."""
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False)


class UnknownVersionError(MalformedError):
    """A document of a `schema_version` that this program does not know: a newer program wrote it."""

    code = "unknown-schema-version"


def parse(raw: bytes) -> GrantTable:
    """The table that the document holds.

    Raises:
        UnknownVersionError: another `schema_version`.
        MalformedError: anything else that is not a document of ours; the message names the place.
    """
    fields = _object(_from_json(raw), "")
    version = fields.get("schema_version")
    if type(version) is not int:
        raise _bad("/schema_version", "is missing or no integer")
    if version != SCHEMA_VERSION:
        raise UnknownVersionError(f"schema_version is {version}, this program knows {SCHEMA_VERSION}")
    _exactly(fields, _FIELDS, "")
    generation = fields["generation"]
    if type(generation) is not int or not 0 <= generation <= GENERATION_MAX:
        raise _bad("/generation", f"is no integer from 0 to {GENERATION_MAX}")
    pins = _pins(fields["pins"])
    reader = _RowReader(pins)
    rows = {
        _guid(key): reader.rows(value, f"/grants/{key}")
        for key, value in _object(fields["grants"], "/grants").items()
    }
    return GrantTable(generation=generation, pins=pins, rows=rows, names=reader.names)


class DocumentReader:
    """Reads successive versions of one document, and only what changed in it.

    Same answers as `parse`. A document that `encode` wrote has one line per repo, and a JSON string cannot
    hold a line feed, so lines can be read one by one, and one that was there before need not be read again.
    Any other document goes to `parse`.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = _Seen(pins_text=b"", pins={}, reader=_RowReader({}), lines={}, table=GrantTable.empty())

    def parse(self, raw: bytes) -> GrantTable:
        """As the function `parse`."""
        return self._parse_lines(raw) or parse(raw)

    def encode(self, table: GrantTable) -> bytes:
        """A document that holds the table; repos that are as in the document read last keep their line."""
        known = {repo: (rows, line) for line, (repo, rows) in self._seen.lines.items()}
        lines: list[bytes] = []
        for repo in table.repos:
            rows, line = known.get(repo, ((), b""))
            lines.append(line if rows is table.rows[repo] else _repo_line(repo, table.rows[repo]))
        return _document(table, lines)

    def _parse_lines(self, raw: bytes) -> GrantTable | None:
        """The table, or None when the document is not laid out as `encode` does or is damaged."""
        frame = _FRAME.fullmatch(raw)
        if frame is None or int(frame[1]) > GENERATION_MAX:
            return None
        try:
            seen = self._seen if frame[2] == self._seen.pins_text else self._seen_with(frame[2])
            lines: dict[bytes, tuple[RepoGuid, Sequence[Row]]] = {}
            for line in frame[3].removesuffix(b"\n").split(b",\n") if frame[3] else ():
                lines[line] = seen.lines.get(line) or _line(line, seen.reader)
        except MalformedError:
            return None
        rows = dict(lines.values())
        if len(rows) != len(lines):
            return None
        table = GrantTable(generation=int(frame[1]), pins=seen.pins, rows=rows, names=seen.reader.names)
        table.learn_from(self._seen.table)
        self._seen = _Seen(pins_text=frame[2], pins=seen.pins, reader=seen.reader, lines=lines, table=table)
        return table

    def _seen_with(self, pins_text: bytes) -> "_Seen":
        """What was seen, as far as it holds with other pins: rows do while no pin has gone."""
        pins = _pins(_from_json(b"{" + pins_text + b"}"))
        kept = self._seen.lines if pins.keys() >= self._seen.pins.keys() else {}
        return _Seen(
            pins_text=pins_text, pins=pins, reader=_RowReader(pins), lines=kept, table=self._seen.table
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    pins_text: bytes
    pins: Mapping[PinId, Pin]
    reader: "_RowReader"
    lines: Mapping[bytes, tuple[RepoGuid, Sequence[Row]]]
    table: GrantTable


def _line(line: bytes, reader: "_RowReader") -> tuple[RepoGuid, Sequence[Row]]:
    """One repo's line, without the comma that follows it."""
    fields = _object(_from_json(b"{" + line + b"}"), "/grants")
    if len(fields) != 1:
        raise _bad("/grants", "has a line with several repos")
    ((key, value),) = fields.items()
    return _guid(key), reader.rows(value, f"/grants/{key}")


def encode(table: GrantTable) -> bytes:
    """The document that holds the table; the same table gives the same bytes, and `parse` gives it back."""
    return _document(table, [_repo_line(repo, table.rows[repo]) for repo in table.repos])


def _repo_line(repo: RepoGuid, rows: Sequence[Row]) -> bytes:
    return f'"{repo}":{_ENCODER.encode(rows)}'.encode()


def _document(table: GrantTable, lines: Sequence[bytes]) -> bytes:
    """The whole document; its layout is `_FRAME`'s."""
    pins = [f'"{key}":{_ENCODER.encode(pin.to_json())}'.encode() for key, pin in table.pins.items()]
    head = f'{{\n"schema_version":{SCHEMA_VERSION},\n"generation":{table.generation},\n"pins":{{\n'
    return b"".join([head.encode(), _joined(pins), b'},\n"grants":{\n', _joined(lines), b"}\n}\n"])


def _joined(lines: Sequence[bytes]) -> bytes:
    return b",\n".join(lines) + b"\n" if lines else b""


class _RowReader:
    """Checks rows.

    What it has seen is remembered: the same few names, people and instants come up again and again, and a
    set's answer is much cheaper than a check.
    """

    __slots__ = ("_instants", "_optional", "_people", "_pins", "names")

    def __init__(self, pins: Mapping[PinId, Pin]) -> None:
        self.names: dict[str, QualifiedName] = {}
        self._pins = pins
        self._instants: set[str] = set()
        self._people: set[str] = set()
        self._optional: Mapping[str, Callable[[object], str | None]] = {
            "isolation": _isolation,
            "vram_mb": _vram_mb,
            "expires_at": self._instant,
            "note": _note,
        }

    def rows(self, value: object, where: str) -> Sequence[Row]:
        """One repo's rows, put in order of device: at least one, no device twice."""
        if type(value) is not list or not value:
            raise _bad(where, "is no list of grants, or an empty one")
        previous, ordered = "", True
        for index, row in enumerate(value):
            fault = None if self._known(row) else self._fault(row)
            if fault is not None:
                raise _bad(f"{where}/{index}", fault)
            ordered = ordered and previous < row["device"]
            previous = row["device"]
        rows = cast("list[Row]", value)
        if not ordered:
            rows.sort(key=lambda row: row["device"])
            for before, row in itertools.pairwise(rows):
                if before["device"] == row["device"]:
                    raise _bad(where, f"holds {row['device']} twice")
        return rows

    def _known(self, row: object) -> bool:
        """True for a row of nothing but values that were found good before, as nearly all are."""
        try:
            fields = cast("Row", row)
            return (
                fields["device"] in self.names
                and fields["pin"] in self._pins
                and fields["granted_at"] in self._instants
                and fields["granted_by"] in self._people
                and fields["sharing"] in _SHARINGS
                and len(fields) == len(_REQUIRED)
            )
        except (KeyError, TypeError):
            return False

    def _fault(self, row: object) -> str | None:
        """Why this is no row, or None."""
        if type(row) is not dict:
            return "is no object"
        try:
            device, pin, sharing = row["device"], row["pin"], row["sharing"]
            granted_at, granted_by = row["granted_at"], row["granted_by"]
        except KeyError as exc:
            return f"lacks the field {exc.args[0]!r}"
        if type(pin) is not str or pin not in self._pins:
            return "names a pin that is not there"
        if type(sharing) is not str or sharing not in _SHARINGS:
            return f"has a sharing that is none of {sorted(_SHARINGS)}"
        fault = self._device(device) or self._instant(granted_at) or self._person(granted_by)
        if fault is not None or len(row) == len(_REQUIRED):
            return fault
        return self._optional_fault(row)

    def _optional_fault(self, row: dict[str, object]) -> str | None:
        for name in row.keys() - _REQUIRED:
            check = self._optional.get(name)
            if check is None:
                return f"has the unknown field {name!r}"
            fault = check(row[name])
            if fault is not None:
                return fault
        return None

    def _device(self, value: object) -> str | None:
        if type(value) is not str:
            return "has a device that is no text"
        if value not in self.names:
            try:
                self.names[value] = QualifiedName.parse(value)
            except MalformedError as exc:
                return exc.message
        return None

    def _instant(self, value: object) -> str | None:
        if type(value) is not str:
            return "has an instant that is no text"
        if value not in self._instants:
            try:
                parse_instant(value)
            except MalformedError as exc:
                return exc.message
            self._instants.add(value)
        return None

    def _person(self, value: object) -> str | None:
        if type(value) is not str:
            return "has a granted_by that is no text"
        if value not in self._people:
            problem = text_problem(value, GRANTED_BY_MAX_CHARS)
            if problem is not None:
                return f"has a granted_by that {problem}"
            self._people.add(value)
        return None


def _isolation(value: object) -> str | None:
    if type(value) is not str or value not in _ISOLATIONS:
        return f"has an isolation that is none of {sorted(_ISOLATIONS)}"
    return None


def _vram_mb(value: object) -> str | None:
    if type(value) is not int or not 0 < value <= VRAM_MB_MAX:
        return f"has a vram_mb that is no integer from 1 to {VRAM_MB_MAX}"
    return None


def _note(value: object) -> str | None:
    if type(value) is not str or not value:
        return "has a note that is no text, or an empty one"
    problem = text_problem(value, NOTE_MAX_CHARS)
    return None if problem is None else f"has a note that {problem}"


def _from_json(raw: bytes) -> object:
    try:
        value: object = jiter.from_json(raw, catch_duplicate_keys=True, allow_inf_nan=False)
    except ValueError as exc:
        raise MalformedError(f"not a JSON document: {exc}") from exc
    return value


def _pins(value: object) -> Mapping[PinId, Pin]:
    return {_pin_id(key): _pin(key, each) for key, each in _object(value, "/pins").items()}


def _object(value: object, where: str) -> Mapping[str, object]:
    if type(value) is not dict:
        raise _bad(where, "is no object")
    return value


def _exactly(fields: Mapping[str, object], names: frozenset[str], where: str) -> None:
    missing, unknown = sorted(names - fields.keys()), sorted(fields.keys() - names)
    if missing:
        raise _bad(where, f"lacks the field {missing[0]!r}")
    if unknown:
        raise _bad(where, f"has the unknown field {unknown[0]!r}")


def _pin_id(key: str) -> PinId:
    if not (key.isascii() and key.isdecimal() and len(key) <= 15 and key[0] != "0"):
        raise _bad(f"/pins/{key}", "is no pin number")
    return PinId(key)


def _pin(key: str, value: object) -> Pin:
    try:
        return Pin.from_json(value)
    except MalformedError as exc:
        raise _bad(f"/pins/{key}", exc.message) from exc


def _guid(key: str) -> RepoGuid:
    try:
        return parse_guid(key)
    except MalformedError as exc:
        raise _bad("/grants", exc.message) from exc


def _bad(where: str, reason: str) -> MalformedError:
    return MalformedError(f"{where or '/'} {reason}")
