"""Heads: what is taken, what is refused with which code, and that no way of cutting the bytes matters."""

import base64
import contextlib
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.http.encode import encode_request_head
from gate.http.message import MAX_HEAD_BYTES, MAX_HEADERS, Framing, HttpCode, HttpError, RequestHead
from gate.http.parse import find_head, media_type, parse_request_head, parse_response_head
from tests.shared_data import shared


def request(*lines: str, line: str = "GET /_ping HTTP/1.1", host: bool = True) -> bytes:
    return "\r\n".join([line, *(["Host: d"] if host else []), *lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("raw", "code", "status"),
    [
        (request(line="GET /_ping HTTP/1.0"), HttpCode.VERSION, 505),
        (request(line="GET /_ping HTTP/1.2"), HttpCode.VERSION, 505),
        (request(line="GET /_ping HTTP/2.0"), HttpCode.VERSION, 505),
        (request(line="GET /_ping"), HttpCode.REQUEST_LINE, 400),
        (request(line="GET /_ping http/1.1"), HttpCode.REQUEST_LINE, 400),
        (request(line="GET  /_ping HTTP/1.1"), HttpCode.REQUEST_LINE, 400),
        (request(line="GET /_ping  HTTP/1.1"), HttpCode.REQUEST_LINE, 400),
        (request(line=" GET /_ping HTTP/1.1"), HttpCode.REQUEST_LINE, 400),
        (request(line="GET\t/_ping\tHTTP/1.1"), HttpCode.REQUEST_LINE, 400),
        (request(line="GET /a b HTTP/1.1"), HttpCode.REQUEST_LINE, 400),
        (request(line="G{T /_ping HTTP/1.1"), HttpCode.REQUEST_LINE, 400),
        (request(line=""), HttpCode.REQUEST_LINE, 400),
        (request(line="GET /\xe9 HTTP/1.1"), HttpCode.REQUEST_LINE, 400),
        (request(line="GET http://d/_ping HTTP/1.1"), HttpCode.TARGET, 400),
        (request(line="GET https://evil/v1.44/info HTTP/1.1"), HttpCode.TARGET, 400),
        (request(line="CONNECT d:80 HTTP/1.1"), HttpCode.TARGET, 400),
        (request(line="OPTIONS * HTTP/1.1"), HttpCode.TARGET, 400),
        (request(line="GET /a#b HTTP/1.1"), HttpCode.TARGET, 400),
        (b"PRI * HTTP/2.0\r\n\r\n", HttpCode.VERSION, 505),
        (request(host=False), HttpCode.HOST, 400),
        (request("Host: e"), HttpCode.HOST, 400),
        (request("hOST: e"), HttpCode.HOST, 400),
        (request("A : b"), HttpCode.HEADER, 400),
        (request(" A: b"), HttpCode.HEADER, 400),
        (request("A: b", " folded"), HttpCode.HEADER, 400),
        (request("A: b", "\tfolded"), HttpCode.HEADER, 400),
        (request("A"), HttpCode.HEADER, 400),
        (request(": b"), HttpCode.HEADER, 400),
        (request("A\xe9: b"), HttpCode.HEADER, 400),
        (request("A: b\x00c"), HttpCode.LINE_END, 400),
        (request("A: b\x7fc"), HttpCode.LINE_END, 400),
        (request("A: b\rContent-Length: 3"), HttpCode.LINE_END, 400),
        (request("A: b\nContent-Length: 3"), HttpCode.LINE_END, 400),
        (b"GET /_ping HTTP/1.1\nHost: d\n\n", HttpCode.LINE_END, 400),
        (b"GET /_ping HTTP/1.1\r\nHost: d\n\r\n\r\n", HttpCode.LINE_END, 400),
        (request("Content-Length: 5", "Content-Length: 5"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: 5", "Content-Length: 6"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: 5, 5"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: +5"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: -5"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: 0x5"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: 5 5"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: 1_0"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length:"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: \xef\xbc\x91"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: \xb2"), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: 9223372036854775808"), HttpCode.CONTENT_LENGTH, 413),
        (request("Content-Length: " + "9" * 40), HttpCode.CONTENT_LENGTH, 400),
        (request("Content-Length: 5", "Transfer-Encoding: chunked"), HttpCode.TRANSFER_ENCODING, 400),
        (request("Transfer-Encoding: chunked", "Content-Length: 0"), HttpCode.TRANSFER_ENCODING, 400),
        (
            request("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
            HttpCode.TRANSFER_ENCODING,
            501,
        ),
        (request("Transfer-Encoding: chunked, chunked"), HttpCode.TRANSFER_ENCODING, 501),
        (request("Transfer-Encoding: gzip, chunked"), HttpCode.TRANSFER_ENCODING, 501),
        (request("Transfer-Encoding: identity"), HttpCode.TRANSFER_ENCODING, 501),
        (request("Transfer-Encoding: xchunked"), HttpCode.TRANSFER_ENCODING, 501),
        (request("Transfer-Encoding: \x0bchunked"), HttpCode.LINE_END, 400),
        (request("Transfer-Encoding:"), HttpCode.TRANSFER_ENCODING, 501),
        (request("Expect: 200-ok"), HttpCode.EXPECT, 417),
        (request("Expect: 100-continue", "Expect: 100-continue"), HttpCode.EXPECT, 417),
        (request(*(f"A{n}: b" for n in range(MAX_HEADERS))), HttpCode.HEAD_TOO_LARGE, 431),
        (request("A: " + "b" * MAX_HEAD_BYTES), HttpCode.HEAD_TOO_LARGE, 431),
    ],
)
def test_refused(raw: bytes, code: HttpCode, status: int) -> None:
    with pytest.raises(HttpError) as caught:
        parse_request_head(raw)
    assert (caught.value.rule, caught.value.status) == (code, status)
    assert caught.value.text()


def test_what_a_docker_client_sends() -> None:
    head = parse_request_head(
        b"POST /v1.51/containers/create?name=a HTTP/1.1\r\nHost: api.moby.localhost\r\n"
        b"User-Agent: Docker-Client/28.5.2 (linux)\r\nContent-Length: 0013\r\n"
        b"content-TYPE:\t application/json \t\r\nConnection: Upgrade, keep-alive\r\nUpgrade: TCP\r\n"
        b"Expect: 100-Continue\r\n\r\n"
    )
    assert head == RequestHead(
        method="POST",
        target=b"/v1.51/containers/create?name=a",
        headers=(
            (b"host", b"api.moby.localhost"),
            (b"user-agent", b"Docker-Client/28.5.2 (linux)"),
            (b"content-length", b"0013"),
            (b"content-type", b"application/json"),
            (b"connection", b"Upgrade, keep-alive"),
            (b"upgrade", b"TCP"),
            (b"expect", b"100-Continue"),
        ),
        content_length=13,
        chunked=False,
        upgrade=b"tcp",
        expect_continue=True,
        keep_alive=True,
    )
    assert head.has_body
    assert head.header(b"user-agent") == b"Docker-Client/28.5.2 (linux)"
    assert head.header(b"absent") is None


@pytest.mark.parametrize(
    ("lines", "upgrade", "keep_alive"),
    [
        ((), None, True),
        (("Upgrade: tcp",), None, True),
        (("Connection: upgrade",), None, True),
        (("Connection: Upgrade", "Upgrade: h2c"), b"h2c", True),
        (("Connection: Upgrade", "Upgrade: h2c", "Upgrade: tcp"), None, True),
        (("Connection: close",), None, False),
        (("Connection: keep-alive", "Connection: x, CLOSE"), None, False),
    ],
)
def test_connection_options(lines: tuple[str, ...], upgrade: bytes | None, keep_alive: bool) -> None:
    head = parse_request_head(request(*lines))
    assert (head.upgrade, head.keep_alive) == (upgrade, keep_alive)


def verdict(pieces: list[bytes]) -> tuple[str, object]:
    """What a reader that gets these pieces one after the other makes of them."""
    data, seen = b"", 0
    try:
        for piece in pieces:
            data += piece
            end = find_head(data, seen)
            if end:
                return "head", (parse_request_head(data[:end]), end)
            seen = len(data)
    except HttpError as error:
        return "refused", error.status // 100
    return "waiting", None


SCRAPS = (
    b"GET", b"POST", b" ", b"/", b"/_ping", b"HTTP/1.1", b"\r\n", b"\n", b"\r", b"Host: d\r\n", b"\0",
    b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n", b":", b"a: b\r\n",
)  # fmt: skip
LINES = (b"A: b\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n")
heads = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from(SCRAPS), max_size=12).map(b"".join),
    st.lists(st.sampled_from(LINES), max_size=6).map(
        lambda lines: b"GET /x HTTP/1.1\r\nHost: d\r\n" + b"".join(lines) + b"\r\nrest"
    ),
)


@given(heads, st.lists(st.integers(0, 300), max_size=8))
def test_cutting_the_bytes_changes_nothing(raw: bytes, cuts: list[int]) -> None:
    points = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    pieces = [raw[start:end] for start, end in pairwise(points)]
    assert (
        verdict(pieces) == verdict([raw[i : i + 1] for i in range(len(raw))]) == verdict([raw] if raw else [])
    )


@given(st.binary(max_size=400))
def test_parsers_are_total(raw: bytes) -> None:
    for parse in (
        parse_request_head,
        lambda data: parse_response_head(data, method="GET"),
        find_head,
    ):
        with contextlib.suppress(HttpError):
            parse(raw)


names = st.from_regex(rb"x-[a-z0-9-]{1,12}", fullmatch=True)
values = st.from_regex(rb"([!-~\x80-\xff]([ -~\x80-\xff]{0,20}[!-~\x80-\xff])?)?", fullmatch=True)


@given(
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.from_regex(rb"/[A-Za-z0-9/?=&%._-]{0,40}", fullmatch=True),
    st.lists(st.tuples(names, values), max_size=6),
    st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    st.booleans(),
)
def test_what_is_encoded_is_read_back(
    method: str, target: bytes, headers: list[tuple[bytes, bytes]], length: int | None, chunked: bool
) -> None:
    raw = encode_request_head(method, target, headers, content_length=length, chunked=chunked)
    assert find_head(raw) == len(raw)
    head = parse_request_head(raw)
    assert (head.method, head.target) == (method, target)
    assert [pair for pair in head.headers if pair[0].startswith(b"x-")] == headers
    assert head.chunked == chunked
    assert head.content_length == (None if chunked else length)


@settings(max_examples=20)
@given(st.integers(0, 5))
def test_head_limit_is_exact(beyond: int) -> None:
    frame = request("A: ")
    raw = request("A: " + "b" * (MAX_HEAD_BYTES - len(frame) + beyond))
    if beyond:
        with pytest.raises(HttpError) as caught:
            find_head(raw)
        assert caught.value.rule is HttpCode.HEAD_TOO_LARGE
        with pytest.raises(HttpError):
            find_head(raw[:MAX_HEAD_BYTES], MAX_HEAD_BYTES - 1)
    else:
        assert find_head(raw) == MAX_HEAD_BYTES
        assert parse_request_head(raw).method == "GET"


@pytest.mark.parametrize(
    ("raw", "method", "framing", "length", "keep_alive", "verbatim"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", Framing.LENGTH, 5, True, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", Framing.NONE, 0, True, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", Framing.CHUNKED, 0, True, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "POST", Framing.NONE, 0, True, True),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", "POST", Framing.NONE, 0, True, True),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "POST", Framing.NONE, 0, True, True),
        (b"HTTP/1.1 200 OK\r\n\r\n", "GET", Framing.CLOSE, 0, False, True),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "GET", Framing.LENGTH, 0, True, True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", "GET", Framing.LENGTH, 1, False, False),
        (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n",
            "GET",
            Framing.LENGTH,
            1,
            False,
            False,
        ),
        (b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n", "POST", Framing.NONE, 0, True, False),
    ],
)
def test_answers(
    raw: bytes, method: str, framing: Framing, length: int, keep_alive: bool, verbatim: bool
) -> None:
    head = parse_response_head(raw, method=method)
    assert (head.framing, head.content_length, head.keep_alive, head.verbatim) == (
        framing,
        length,
        keep_alive,
        verbatim,
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 99 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"garbage\r\n\r\n",
    ],
)
def test_answers_that_cannot_be_framed(raw: bytes) -> None:
    with pytest.raises(HttpError):
        parse_response_head(raw, method="GET")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"application/json", b"application/json"),
        (b"Application/JSON; charset=utf-8", b"application/json"),
        (b" application/json ;x", b"application/json"),
        (b"", b""),
    ],
)
def test_media_type(value: bytes, expected: bytes) -> None:
    assert media_type(value) == expected


MEANT_FOR_THE_READER = {
    "bare LF", "HTTP/1.0 no CL", "HTTP/0.9", "HTTP/1.2", "two hosts", "dup CL differ", "CL list", "CL +13",
    "CL 0x0d", "CL fullwidth", "multi space request line", "tab request line", "space in path",
    "absolute-form https", "absolute + dotdot",
}  # fmt: skip


def test_shared_vectors() -> None:
    path = shared("docker-api", "vectors.jsonl")
    if path is None:
        pytest.skip("the shared vectors do not lie beside this checkout")
    seen = set()
    for line in path.read_text().splitlines():
        vector = json.loads(line)
        if vector["name"] not in MEANT_FOR_THE_READER:
            continue
        seen.add(vector["name"])
        raw = base64.b64decode(vector["raw_b64"])
        assert verdict([raw])[0] == "refused"
    assert seen == MEANT_FOR_THE_READER
