"""The document: round trips, strictness, agreement of parser, line reader and JSON schema."""

import copy
import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from grants.core import codec
from grants.core.model import Grant
from grants.core.table import GrantTable
from tests.grants import cards
from tests.grants.strategies import grants

SCHEMA = json.loads((Path(codec.__file__).parent / "grants.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def table_of(rows: list[Grant], generation: int = 1) -> GrantTable:
    table = GrantTable(generation=generation - 1, pins={}, rows={})
    for row in rows:
        table = table.with_grant(row)
    return table.next_generation()


def document() -> dict[str, object]:
    """A good document with every field."""
    return {
        "schema_version": 1,
        "generation": 5,
        "pins": {"1": PIN, "12": PIN},
        "grants": {
            "repo-a": [
                {
                    "device": "nvidia.com/gpu=0",
                    "pin": "1",
                    "sharing": "exclusive",
                    "granted_at": "2026-11-30T08:00:00Z",
                    "granted_by": "root",
                },
                {
                    "device": "nvidia.com/gpu=1",
                    "pin": "12",
                    "sharing": "shared",
                    "granted_at": "2026-11-30T08:00:00Z",
                    "granted_by": "",
                    "isolation": "mig",
                    "vram_mb": 1,
                    "expires_at": "2026-11-30T09:00:00Z",
                    "note": "für Ana",
                },
            ]
        },
    }


@pytest.fixture(scope="module", autouse=True)
def _a_pin(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A pin's JSON as the cdi package writes it."""
    global PIN  # noqa: PLW0603 - one value for the whole module, made where folders can be made
    view = cards.machine(tmp_path_factory.mktemp("root")).view()
    found = view.meaning(next(iter(sorted(view.catalog.devices)))).pin
    assert found is not None
    PIN = found.to_json()


PIN: object = None


@given(st.lists(grants(), max_size=12), st.integers(1, 2**53 - 1))
def test_round_trip(rows: list[Grant], generation: int) -> None:
    table = table_of(rows, generation)
    raw = codec.encode(table)
    again = codec.parse(raw)
    assert list(again) == list(table)
    assert (again.generation, again.pins) == (table.generation, table.pins)
    assert codec.encode(again) == raw
    VALIDATOR.validate(json.loads(raw))


@given(st.lists(st.lists(grants(), max_size=8), min_size=1, max_size=6))
def test_the_line_reader_gives_what_parse_gives(versions: list[list[Grant]]) -> None:
    reader = codec.DocumentReader()
    for rows in versions:
        raw = codec.encode(table_of(rows))
        table = reader.parse(raw)
        assert list(table) == list(codec.parse(raw)) == list(table_of(rows))
        assert reader.encode(table) == raw
        for row in rows[:1]:
            less = table.without(row.repo, row.device).next_generation()
            assert reader.encode(less) == codec.encode(less)


@given(st.lists(grants(), min_size=1, max_size=4), st.data())
def test_the_line_reader_refuses_what_parse_refuses(rows: list[Grant], data: st.DataObject) -> None:
    """Bytes changed, lost, doubled in a document that the reader has seen whole before."""
    good = codec.encode(table_of(rows))
    reader = codec.DocumentReader()
    reader.parse(good)
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 60)))
    middle = data.draw(
        st.sampled_from([b"", b",", b"\n", b"}", b",\n", good[start:end] * 2, b'"x":[],', b"1"])
    )
    bad = good[:start] + middle + good[end:]
    outcomes: list[tuple[int, list[Grant]] | None] = []
    for parse in (codec.parse, reader.parse):
        try:
            table = parse(bad)
        except MalformedError:
            outcomes.append(None)
        else:
            outcomes.append((table.generation, list(table)))
    assert outcomes[0] == outcomes[1]
    assert list(reader.parse(good)) == list(codec.parse(good))


@given(st.binary(max_size=200))
def test_parse_is_total(raw: bytes) -> None:
    for parse in (codec.parse, codec.DocumentReader().parse):
        with pytest.raises(MalformedError):
            parse(raw)


def test_a_document_laid_out_otherwise_means_the_same() -> None:
    good = document()
    expected = list(codec.parse(json.dumps(good).encode()))
    assert len(expected) == 2
    assert list(codec.DocumentReader().parse(json.dumps(good, indent=4).encode())) == expected
    good["grants"]["repo-a"].reverse()  # type: ignore[index]
    assert list(codec.parse(json.dumps(good).encode())) == expected


ROW = ("grants", "repo-a", 1)
CASES: list[tuple[tuple[object, ...], object, bool]] = [
    # path, value (... removes), good
    (("schema_version",), 1, True),
    (("schema_version",), 0, False),
    (("schema_version",), 2, False),
    (("schema_version",), "1", False),
    (("schema_version",), None, False),
    (("schema_version",), ..., False),
    (("generation",), 0, True),
    (("generation",), 2**53 - 1, True),
    (("generation",), 2**53, False),
    (("generation",), -1, False),
    (("generation",), 1.5, False),
    (("generation",), True, False),
    (("generation",), "1", False),
    (("generation",), ..., False),
    (("extra",), 1, False),
    (("pins",), [], False),
    (("pins",), ..., False),
    (("pins", "3"), "same", True),
    (("pins", "0"), "same", False),
    (("pins", "01"), "same", False),
    (("pins", "-1"), "same", False),
    (("pins", "x"), "same", False),
    (("pins", ""), "same", False),
    (("pins", "٣"), "same", False),
    (("pins", "1234567890123456"), "same", False),
    (("pins", "12"), None, False),
    (("pins", "12"), {}, True),
    (("pins", "12"), [], False),
    (("pins", "12", "uuids"), [1], False),
    (("pins", "12", "uuid"), [], False),
    (("pins", "12", "nodes"), [["/dev/x", "", None, None]], True),
    (("pins", "12", "nodes"), [["/dev/x", "c", 195]], False),
    (("pins", "12", "nodes"), [["/dev/x", "c", 195, "0"]], False),
    (("pins", "12", "nodes"), [["/dev/x", "c", 195, True]], False),
    (("pins", "12", "nodes"), {}, False),
    (("grants",), {}, True),
    (("grants",), [], False),
    (("grants", "repo-a"), [], False),
    (("grants", "repo-a"), {}, False),
    (("grants", "../a"), "same", False),
    (("grants", ""), "same", False),
    (("grants", "-a"), "same", False),
    (("grants", "a\n"), "same", False),
    (("grants", "a" * 65), "same", False),
    (("grants", "a" * 64), "same", True),
    (("grants", "repo-a", 1), None, False),
    (("grants", "repo-a", 1), "text", False),
    ((*ROW, "device"), "nvidia.com/gpu=10", True),
    ((*ROW, "device"), "nvidia.com/gpu", False),
    ((*ROW, "device"), "n/gpu=0", False),
    ((*ROW, "device"), "nvidia.com/gpu=1\n", False),
    ((*ROW, "device"), 1, False),
    ((*ROW, "device"), ["x"], False),
    ((*ROW, "device"), ..., False),
    ((*ROW, "pin"), 1, False),
    ((*ROW, "pin"), None, False),
    ((*ROW, "pin"), ..., False),
    ((*ROW, "sharing"), "exclusive", True),
    ((*ROW, "sharing"), "Exclusive", False),
    ((*ROW, "sharing"), None, False),
    ((*ROW, "sharing"), ..., False),
    ((*ROW, "granted_at"), "2026-11-30T08:00:00.5Z", False),
    ((*ROW, "granted_at"), "2026-11-30T08:00:00+00:00", False),
    ((*ROW, "granted_at"), "2026-11-30 08:00:00Z", False),
    ((*ROW, "granted_at"), "2026-11-30T24:00:00Z", False),
    ((*ROW, "granted_at"), "2026-13-01T00:00:00Z", False),
    ((*ROW, "granted_at"), 1700000000, False),
    ((*ROW, "granted_at"), ..., False),
    ((*ROW, "granted_by"), "x" * 200, True),
    ((*ROW, "granted_by"), "x" * 201, False),
    ((*ROW, "granted_by"), None, False),
    ((*ROW, "granted_by"), ..., False),
    ((*ROW, "isolation"), "whole-gpu", True),
    ((*ROW, "isolation"), "none", False),
    ((*ROW, "isolation"), None, False),
    ((*ROW, "isolation"), ..., True),
    ((*ROW, "vram_mb"), 2**31 - 1, True),
    ((*ROW, "vram_mb"), 2**31, False),
    ((*ROW, "vram_mb"), 0, False),
    ((*ROW, "vram_mb"), True, False),
    ((*ROW, "vram_mb"), "1", False),
    ((*ROW, "vram_mb"), ..., True),
    ((*ROW, "expires_at"), "2027-01-01T00:00:00Z", True),
    ((*ROW, "expires_at"), "soon", False),
    ((*ROW, "expires_at"), None, False),
    ((*ROW, "expires_at"), ..., True),
    ((*ROW, "note"), "x" * 500, True),
    ((*ROW, "note"), "x" * 501, False),
    ((*ROW, "note"), "", False),
    ((*ROW, "note"), None, False),
    ((*ROW, "note"), ..., True),
    ((*ROW, "Note"), "x", False),
    ((*ROW, "repo"), "x", False),
]


@pytest.mark.parametrize(("path", "value", "good"), CASES)
def test_parser_and_schema_agree(path: tuple[object, ...], value: object, good: bool) -> None:
    changed = copy.deepcopy(document())
    holder = changed
    for step in path[:-1]:
        holder = holder[step]  # type: ignore[index,assignment]
    if value is ...:
        del holder[path[-1]]  # type: ignore[arg-type]
    else:
        same = next(iter(holder.values())) if value == "same" else value
        holder[path[-1]] = same  # type: ignore[index]
    assert VALIDATOR.is_valid(changed) == good
    try:
        codec.parse(json.dumps(changed).encode())
    except MalformedError:
        assert not good
    else:
        assert good


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"pin": "12"', '"pin": "2"'),
        ("gpu=1", "gpu=0"),
        ("2026-11-30T09:00:00Z", "2026-02-30T09:00:00Z"),
        ("f\\u00fcr Ana", "\\u001b[2J"),
        ('"note"', '"device": "nvidia.com/gpu=3", "note"'),
        ('"generation": 5', '"generation": 5, "generation": 6'),
        ('"generation": 5', '"generation": NaN'),
    ],
)
def test_what_a_schema_cannot_say_is_refused_too(old: str, new: str) -> None:
    text = json.dumps(document())
    assert text.count(old) == 1
    codec.parse(text.encode())
    with pytest.raises(MalformedError):
        codec.parse(text.replace(old, new).encode())


def test_another_version_is_told_from_damage() -> None:
    with pytest.raises(codec.UnknownVersionError):
        codec.parse(b'{"schema_version": 2, "anything": "else"}')


def test_instants_come_back_in_utc() -> None:
    (first, second) = codec.parse(json.dumps(document()).encode())
    assert first.granted_at == datetime(2026, 11, 30, 8, tzinfo=UTC)
    assert second.expires_at is not None
    assert second.expires_at.utcoffset() == first.granted_at.utcoffset()
