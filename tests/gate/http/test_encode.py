"""What the gate writes: only listed headers of the client pass, and no hop-by-hop field comes back."""

import json

import pytest

from gate.http.content import json_content_type
from gate.http.encode import (
    encode_message,
    encode_request_head,
    encode_response_head,
    forwarded_headers,
)
from gate.http.message import HttpError
from gate.http.parse import parse_request_head, parse_response_head


def head(*lines: str, method: str = "POST", body: bool = True) -> bytes:
    length = ["Content-Length: 2"] if body else []
    return "\r\n".join([f"{method} /x HTTP/1.1", "Host: d", *length, *lines, "", ""]).encode("latin-1")


def names(*lines: str) -> set[bytes]:
    return {name for name, _ in forwarded_headers(parse_request_head(head(*lines)))}


def test_only_listed_headers_pass() -> None:
    passed = names(
        "User-Agent: a", "Accept: b", "X-Registry-Auth: c", "X-Registry-Config: d", "X-Meta-Token: e",
        "X-Docker-Expose-Session-Uuid: f", "Traceparent: g",
        "Cookie: no", "Authorization: no", "X-Forwarded-For: no", "TE: trailers", "Trailer: x", "Range: x",
        "Expect: 100-continue", "Keep-Alive: 5", "Proxy-Connection: x", "HTTP2-Settings: x", "Origin: x",
        "Sec-WebSocket-Key: x", "Content-Type: application/x-www-form-urlencoded", "X-Other: PUT",
    )  # fmt: skip
    assert passed == {
        b"user-agent", b"accept", b"x-registry-auth", b"x-registry-config", b"x-meta-token",
        b"x-docker-expose-session-uuid", b"traceparent",
    }  # fmt: skip


def test_headers_that_connection_names_do_not_pass() -> None:
    assert names(
        "Connection: User-Agent, x-registry-auth", "User-Agent: a", "X-Registry-Auth: b", "Accept: c"
    ) == {b"accept"}


def test_websocket_headers_pass_with_their_upgrade_only() -> None:
    lines = ("Upgrade: websocket", "Sec-WebSocket-Key: a", "Sec-WebSocket-Version: 13", "Origin: o")
    assert names(*lines) == set()
    assert names("Connection: Upgrade", *lines) == {b"sec-websocket-key", b"sec-websocket-version", b"origin"}


def test_request_head() -> None:
    raw = encode_request_head(
        "POST",
        b"/v1.44/x?a=b",
        ((b"user-agent", b"u"),),
        content_length=3,
        content_type=b"application/json",
        upgrade=b"tcp",
    )
    assert raw == (
        b"POST /v1.44/x?a=b HTTP/1.1\r\nHost: docker\r\nuser-agent: u\r\nContent-Type: application/json\r\n"
        b"Content-Length: 3\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    )


def test_answers_lose_hop_by_hop_fields() -> None:
    answer = parse_response_head(
        b"HTTP/1.1 200 OK\r\nApi-Version: 1.51\r\nConnection: close, X-Named\r\nX-Named: 1\r\n"
        b"Keep-Alive: 5\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\nUpgrade: h2c\r\n\r\n",
        method="GET",
    )
    assert encode_response_head(answer, close=False) == (
        b"HTTP/1.1 200 OK\r\nApi-Version: 1.51\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert encode_response_head(answer, close=True).endswith(b"Connection: close\r\n\r\n")


def test_head_answers_keep_their_length() -> None:
    answer = parse_response_head(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n", method="HEAD"
    )
    assert encode_response_head(answer, close=False) == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


def test_a_switch_of_protocols_keeps_its_fields() -> None:
    raw = (
        b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\n"
        b"Upgrade: tcp\r\n\r\n"
    )
    assert encode_response_head(parse_response_head(raw, method="POST"), close=False, upgrade=True) == raw


@pytest.mark.parametrize("text", ["plain", 'quote " and \\ and \n', "snow \u2603", "lone \ud800"])
def test_message(text: str) -> None:
    raw = encode_message(403, text, close=False)
    start, _, body = raw.partition(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 403 ")
    assert b"Content-Type: application/json" in start
    assert f"Content-Length: {len(body)}".encode() in start
    assert json.loads(body)["message"] == text.encode("utf-8", "replace").decode()
    assert encode_message(403, text, method="HEAD", close=False) == start + b"\r\n\r\n"
    assert b"\r\nConnection: close\r\n\r\n" in encode_message(403, text, close=True)


@pytest.mark.parametrize(
    "line", ["application/json", "Application/Json; charset=utf-16", "application/json;"]
)
def test_json_bodies(line: str) -> None:
    assert json_content_type(parse_request_head(head(f"Content-Type: {line}"))) == b"application/json"
    assert json_content_type(parse_request_head(head(f"Content-Type: {line}", body=False))) is None


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Content-Type: text/plain",),
        ("Content-Type: application/x-www-form-urlencoded",),
        ("Content-Type: application/ld+json",),
        ("Content-Type: application/json", "Content-Type: application/json"),
        ("Content-Type: text/plain", "Content-Type: application/json"),
    ],
)
def test_other_bodies_where_json_belongs(lines: tuple[str, ...]) -> None:
    with pytest.raises(HttpError):
        json_content_type(parse_request_head(head(*lines)))
