"""Data for people and programs: tables, JSON, YAML and CSV, all from the same rows. Pure but for `emit`.

Contract: data goes to stdout and words to stderr; tables are the default on a terminal and in pipes alike; an
empty list is `[]` in JSON. Colour only in tables, only on a terminal, never with `NO_COLOR` set
(https://no-color.org).
"""

import csv
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import click

Json: TypeAlias = "bool | int | str | Sequence[Json] | Mapping[str, Json] | None"
Row: TypeAlias = Mapping[str, Json]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COLOURS = {
    "live": "green", "expired": "yellow", "drifted": "red", "unresolvable": "red",
}  # fmt: skip


class Format(StrEnum):
    """How data leaves the program."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Column:
    """One table column: its heading and the row's key it shows."""

    heading: str
    key: str


def columns(*keys: str) -> tuple[Column, ...]:
    """Columns headed by their own keys, in capitals and with spaces."""
    return tuple(Column(key.replace("_", " ").upper(), key) for key in keys)


def render_rows(
    rows: Sequence[Row],
    shown: Sequence[Column],
    form: Format,
    *,
    keys: Sequence[str] = (),
    colour: bool = False,
) -> str:
    """A list of rows: every key in JSON, YAML and CSV, only `shown` in a table.

    CSV has the keys of the first row as its heading; when there is no row, `keys`, or else those of `shown`.
    """
    match form:
        case Format.TABLE:
            return _table(rows, shown, colour=colour) if rows else ""
        case Format.CSV:
            return _csv(rows, tuple(rows[0]) if rows else keys or tuple(column.key for column in shown))
        case Format.JSON | Format.YAML:
            return _document(list(rows), form)


def render_record(record: Row, form: Format, *, colour: bool = False) -> str:
    """One object: in a table one line per key, in CSV one row."""
    match form:
        case Format.TABLE:
            lines = [{"key": key, "value": value} for key, value in record.items()]
            width = max((len(key) for key in record), default=0)
            return "".join(
                f"{line['key']!s:<{width}}  {_coloured(_cell(line['value']), colour)}".rstrip() + "\n"
                for line in lines
            )
        case Format.CSV:
            return _csv([record], tuple(record))
        case Format.JSON | Format.YAML:
            return _document(record, form)


def emit(text: str) -> None:
    """Write data to stdout, if there is one: with `>&-` Python has none."""
    if sys.stdout is not None:
        sys.stdout.write(text)
        sys.stdout.flush()


def say(text: str) -> None:
    """Write words for people to stderr, if there is one, made safe for a terminal."""
    if sys.stderr is not None:
        sys.stderr.write("\n".join(printable(line) for line in text.split("\n")) + "\n")
        sys.stderr.flush()


def colour_wanted() -> bool:
    """Whether stdout is a terminal and `NO_COLOR` is unset or empty."""
    return not os.environ.get("NO_COLOR") and sys.stdout is not None and sys.stdout.isatty()


def printable(text: str) -> str:
    """The text with control and direction characters escaped: stored words must not steer a terminal."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def _document(value: Json, form: Format) -> str:
    if form is Format.JSON:
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    import yaml  # noqa: PLC0415 - costs 40 ms that the other formats need not pay

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)


def _csv(rows: Sequence[Row], keys: Sequence[str]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([_csv_cell(row.get(key)) for key in keys] for row in rows)
    return stream.getvalue()


def _csv_cell(value: Json) -> str:
    # A spreadsheet runs a cell that starts like a formula; notes are free text, so they get the usual quote.
    text = _cell(value, empty="")
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _table(rows: Sequence[Row], shown: Sequence[Column], *, colour: bool) -> str:
    cells = [[_cell(row.get(column.key)) for column in shown] for row in rows]
    headings = [column.heading for column in shown]
    widths = [max(map(_width, line)) for line in zip(headings, *cells, strict=True)]
    lines = [_line(headings, widths, colour=False), *(_line(line, widths, colour=colour) for line in cells)]
    return "".join(line + "\n" for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], *, colour: bool) -> str:
    padded = (
        _coloured(cell, colour) + " " * (width - _width(cell))
        for cell, width in zip(cells, widths, strict=True)
    )
    return "  ".join(padded).rstrip()


def _cell(value: Json, *, empty: str = "-") -> str:
    match value:
        case None | "":
            return empty
        case bool():
            return "yes" if value else "no"
        case int() | str():
            return printable(str(value))
        case Mapping():
            return ", ".join(f"{key}={_cell(item)}" for key, item in value.items()) or empty
        case _:
            return ", ".join(_cell(item) for item in value) or empty


def _coloured(cell: str, colour: bool) -> str:
    return click.style(cell, fg=_COLOURS[cell]) if colour and cell in _COLOURS else cell


def _width(text: str) -> int:
    """Columns on a terminal: wide East Asian characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )
