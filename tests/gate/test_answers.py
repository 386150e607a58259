"""Warnings of the gate in answers of the daemon."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.answers import HeldAnswer, change_of, merge_warnings, rewritable
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
        (("Content-Type: application/json", "Transfer-Encoding: chunked"), 200, True),
        (("Content-Type: application/json", "Content-Encoding: gzip", "Content-Length: 5"), 200, False),
        (("Content-Type: text/plain", "Content-Length: 5"), 200, False),
        (("Content-Length: 5",), 200, False),
    ],
)
def test_rewritable(lines: tuple[str, ...], status: int, expected: bool) -> None:
    raw = "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode()
    assert rewritable(parse_response_head(raw, method="POST"), 100) is expected


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "pieces"), [(LENGTH, (b"{", b"}")), (CHUNKED, (b"1\r\n{\r", b"\n1\r\n}\r\n0\r\n\r\n"))]
)
def test_an_answer_is_held_until_it_is_whole(raw: bytes, pieces: tuple[bytes, bytes]) -> None:
    held = HeldAnswer(parse_response_head(raw, method="GET"), 100, lambda body: body + b" ")
    assert held.feed(pieces[0], complete=False, close=False) == b""
    sent = bytes(held.feed(pieces[1], complete=True, close=True))
    assert sent.endswith(b"Content-Length: 3\r\nConnection: close\r\n\r\n{} ")
    assert b"chunked" not in sent


def test_an_answer_too_long_to_be_held_goes_out_as_it_came() -> None:
    held = HeldAnswer(parse_response_head(CHUNKED, method="GET"), 8, lambda body: b"changed")
    assert held.feed(b"5\r\nhello", complete=False, close=False) == b""
    assert bytes(held.feed(b"\r\n", complete=False, close=False)).endswith(b"chunked\r\n\r\n5\r\nhello\r\n")
    assert held.feed(b"0\r\n\r\n", complete=True, close=False) == b"0\r\n\r\n"


def test_what_changes() -> None:
    assert change_of("container.list", ()) is None
    change, version = change_of("container.create", ("w",)), change_of("system.version", ())
    assert change is not None
    assert version is not None
    assert json.loads(change(b"{}")) == {"Warnings": ["w"]}
    assert json.loads(version(b'{"ApiVersion": "1.55"}')) == {"ApiVersion": "1.51"}
