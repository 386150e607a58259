"""Warnings of the gate in answers of the daemon."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.answers import merge_warnings, rewritable
from gate.http.parse import parse_response_head


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"Id":"a","Warnings":["x"]}', {"Id": "a", "Warnings": ["x", "w"]}),
        (b'{"Id":"a","Warnings":null}', {"Id": "a", "Warnings": ["w"]}),
        (b"{}", {"Warnings": ["w"]}),
    ],
)
def test_merged(body: bytes, expected: object) -> None:
    assert json.loads(merge_warnings(body, ("w",))) == expected


@given(st.binary(max_size=60))
def test_anything_else_stays(body: bytes) -> None:
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    merged = merge_warnings(body, ("w",))
    if isinstance(parsed, dict):
        assert json.loads(merged)["Warnings"][-1] == "w"
    else:
        assert merged == body


@pytest.mark.parametrize(
    ("lines", "status", "expected"),
    [
        (("Content-Type: application/json", "Content-Length: 5"), 201, True),
        (("Content-Type: application/json; charset=utf-8", "Content-Length: 5"), 200, True),
        (("Content-Type: application/json", "Content-Length: 5"), 404, False),
        (("Content-Type: application/json", "Content-Length: 101"), 200, False),
        (("Content-Type: application/json", "Transfer-Encoding: chunked"), 200, False),
        (("Content-Type: application/json", "Content-Encoding: gzip", "Content-Length: 5"), 200, False),
        (("Content-Type: text/plain", "Content-Length: 5"), 200, False),
        (("Content-Length: 5",), 200, False),
    ],
)
def test_rewritable(lines: tuple[str, ...], status: int, expected: bool) -> None:
    raw = "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode()
    assert rewritable(parse_response_head(raw, method="POST"), 100) is expected
