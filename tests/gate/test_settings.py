"""Our own YAML, read strictly."""

import pytest

from base.errors import MalformedError
from gate.core.settings import read_settings


def read(text: str) -> object:
    return read_settings(text.encode(), "gate.schema.json", "gate.yaml")


def test_read() -> None:
    assert read("schema_version: 1\nlimits: {head_s: 5}\n") == {"schema_version": 1, "limits": {"head_s": 5}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "schema_version: 1\nschema_version: 1",
        "schema_version: 1\nlimits: {head_s: 1, head_s: 2}",
        "schema_version: 2",
        "schema_version: '1'",
        "schema_version: 1\nfoo: 1",
        "schema_version: 1\n1: 2",
        "schema_version: 1\nlimits: {heads_s: 1}",
        "schema_version: 1\n---\nschema_version: 1",
        "schema_version: &a 1\nlimits: *a",
        "schema_version: !!python/object:os.x 1",
        "schema_version: 1\n\tx: 1",
        "{" * 2000,
        "schema_version: 1\nprotected_paths: [relative]",
        "schema_version: 1\nlimits: {head_s: yes}",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        read(text)


def test_bytes_must_be_utf8() -> None:
    with pytest.raises(MalformedError):
        read_settings(b"schema_version: 1 # \xff", "gate.schema.json", "gate.yaml")


def test_the_place_of_every_fault_is_told() -> None:
    with pytest.raises(MalformedError) as caught:
        read("schema_version: 1\nlimits:\n  head_s: -1\n  body_s: x\nprotected_paths:\n- /a\n- b\n")
    message = caught.value.message
    assert all(
        part in message
        for part in ("line 3, limits.head_s", "line 4, limits.body_s", "line 7, protected_paths[1]")
    )
