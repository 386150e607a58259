import dataclasses
import json
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest

from base.errors import MalformedError, NotFoundError
from base.layout import Layout
from machine.core.inventory import Card, Inventory, Platform, Vendor, encode, parse
from machine.inventory import load, save
from tests.engine import REPOSITORY

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
EMPTY = Inventory(
    detected_at=NOON,
    platform=Platform.NATIVE,
    gpus=(),
    nvidia=None,
    kfd=False,
    render_nodes=(),
    runtimes=(),
    gvisor=None,
    remarks=(),
)
GOLDEN = sorted((REPOSITORY / "tests/golden/inventory").glob("*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_parse_and_encode_are_inverse(path: Path) -> None:
    found = parse(path.read_bytes())
    assert parse(encode(found)) == found
    assert encode(found) == path.read_bytes()


def test_goldens_are_there() -> None:
    assert len(GOLDEN) == 9


def _shape(hint: object, schema: dict[str, object], defs: dict[str, dict[str, object]]) -> None:
    """The schema allows what the type holds, and nothing else."""
    if get_origin(hint) is UnionType:
        inner = get_args(hint)[0]
        if "anyOf" in schema:
            options = schema["anyOf"]
            assert isinstance(options, list)
            assert options[1] == {"type": "null"}
            _shape(inner, options[0], defs)
        elif "enum" in schema:
            assert set(schema["enum"]) == {*inner, None}  # type: ignore[call-overload]
        else:
            kind = schema["type"]
            assert isinstance(kind, list)
            assert kind[1] == "null"
            _shape(inner, {**schema, "type": kind[0]}, defs)
        return
    if get_origin(hint) is tuple:
        assert schema["type"] == "array"
        _shape(get_args(hint)[0], schema["items"], defs)  # type: ignore[arg-type]
        return
    if "$ref" in schema:
        schema = defs[str(schema["$ref"]).rpartition("/")[2]]
    assert isinstance(hint, type)
    if dataclasses.is_dataclass(hint):
        names = [field.name for field in dataclasses.fields(hint)]
        properties = schema["properties"]
        assert isinstance(properties, dict)
        assert [name for name in properties if name != "schema_version"] == names
        assert schema["required"] == list(properties)
        assert schema["additionalProperties"] is False
        for name, inner in get_type_hints(hint).items():
            _shape(inner, properties[name], defs)
    elif issubclass(hint, StrEnum):
        assert schema["enum"] == list(hint)
    else:
        assert schema["type"] == {str: "string", int: "integer", bool: "boolean", datetime: "string"}[hint]


def test_schema_and_types_agree() -> None:
    schema = json.loads(files("machine.core").joinpath("inventory.schema.json").read_text())
    _shape(Inventory, schema, schema["$defs"])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        encode(EMPTY).replace(b'"schema_version": 1', b'"schema_version": 2'),
        encode(EMPTY).replace(b'"schema_version": 1', b'"schema_version": true'),
        encode(EMPTY).replace(b'"native"', b'"beos"'),
        encode(EMPTY).replace(b'"kfd": false', b'"kfd": 0'),
        encode(EMPTY).replace(b"2026-11-30T12:00:00Z", b"yesterday"),
        encode(EMPTY).replace(b'"remarks": []', b'"remarks": [], "more": 1'),
        encode(EMPTY).replace(b'"gvisor": null,\n', b""),
    ],
)
def test_what_is_no_inventory(raw: bytes) -> None:
    with pytest.raises(MalformedError) as caught:
        parse(raw)
    assert "renet setup" in caught.value.hint


def test_the_date_moves_only_with_the_machine(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(NotFoundError):
        load(layout)
    save(layout, EMPTY)
    first = load(layout)
    assert (first.inventory, first.checked_at) == (EMPTY, NOON)
    later = NOON + timedelta(hours=3)
    assert save(layout, dataclasses.replace(EMPTY, detected_at=later)) == EMPTY
    second = load(layout)
    assert second.raw == first.raw
    assert second.checked_at == later
    assert second.age(later + timedelta(minutes=5)) == timedelta(minutes=5)
    assert second.age(NOON) == timedelta(0)
    other = dataclasses.replace(EMPTY, detected_at=later, gpus=(Card(vendor=Vendor.AMD),))
    save(layout, other)
    assert load(layout).inventory == other


def test_a_damaged_file_is_told_and_replaced(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.inventory.parent.mkdir(parents=True)
    layout.inventory.write_text("{")
    with pytest.raises(MalformedError, match=r"inventory\.json"):
        load(layout)
    assert save(layout, EMPTY) == load(layout).inventory
