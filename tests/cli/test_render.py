import csv
import io
import json
from collections.abc import Mapping

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.render import Format, Json, columns, printable, render_record, render_rows

SHOWN = columns("name", "vram_mb")
ROWS: list[Mapping[str, Json]] = [
    {"name": "gpu-a", "vram_mb": None, "hidden": ["x", "y"]},
    {"name": "b", "vram_mb": 40960, "hidden": []},
]


def test_a_table_shows_its_columns_aligned() -> None:
    assert render_rows(ROWS, SHOWN, Format.TABLE) == "NAME   VRAM MB\ngpu-a  -\nb      40960\n"


def test_wide_and_combining_characters_keep_columns_aligned() -> None:
    rows = [{"name": "日本", "vram_mb": 1}, {"name": "e\u0301x", "vram_mb": 2}]
    assert render_rows(rows, SHOWN, Format.TABLE).splitlines()[1:] == ["日本  1", "e\u0301x    2"]


@pytest.mark.parametrize(
    ("form", "expected"),
    [(Format.JSON, "[]\n"), (Format.YAML, "[]\n"), (Format.CSV, "name,vram_mb\n"), (Format.TABLE, "")],
)
def test_an_empty_list(form: Format, expected: str) -> None:
    assert render_rows([], SHOWN, form) == expected


def test_programs_get_every_key() -> None:
    assert json.loads(render_rows(ROWS, SHOWN, Format.JSON)) == ROWS
    assert yaml.safe_load(render_rows(ROWS, SHOWN, Format.YAML)) == ROWS
    found = list(csv.DictReader(io.StringIO(render_rows(ROWS, SHOWN, Format.CSV))))
    assert found[0] == {"name": "gpu-a", "vram_mb": "", "hidden": "x, y"}


def test_a_record() -> None:
    record: Mapping[str, Json] = {"name": "a", "roots": ("/x", "/y"), "on": True, "off": False, "none": None}
    assert render_record(record, Format.TABLE) == "name   a\nroots  /x, /y\non     yes\noff    no\nnone   -\n"
    assert json.loads(render_record(record, Format.JSON))["roots"] == ["/x", "/y"]
    assert yaml.safe_load(render_record(record, Format.YAML))["roots"] == ["/x", "/y"]
    assert render_record(record, Format.CSV).startswith("name,roots,on,off,none\n")


def test_nested_mappings_are_shown_flat_in_tables() -> None:
    assert render_record({"m": {"a": 1, "b": "x"}}, Format.TABLE) == "m  a=1, b=x\n"


def test_colour_is_for_known_words_when_it_is_wanted() -> None:
    rows = [{"status": "live"}, {"status": "other"}]
    shown = columns("status")
    assert "\x1b[32mlive" in render_rows(rows, shown, Format.TABLE, colour=True)
    assert "\x1b" not in render_rows([rows[1]], shown, Format.TABLE, colour=True)
    assert "\x1b" not in render_rows(rows, shown, Format.TABLE)
    assert "\x1b" not in render_rows(rows, shown, Format.JSON, colour=True)


@pytest.mark.parametrize("form", [Format.TABLE, Format.CSV])
@given(text=st.text())
def test_stored_words_cannot_steer_a_terminal(form: Format, text: str) -> None:
    out = render_rows([{"name": text, "vram_mb": None}], SHOWN, form)
    assert not set(out) & set("\x1b\x07\x08\r\u202e\u2066")
    assert out.count("\n") == 2


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@x"])
def test_a_spreadsheet_runs_no_cell(text: str) -> None:
    assert f"'{text}" in render_rows([{"name": text}], SHOWN, Format.CSV)


@given(st.text())
def test_printable_is_idempotent(text: str) -> None:
    assert printable(printable(text)) == printable(text)
