"""A client connection: heads in order, refusals that the client can read, limits."""

import asyncio

import pytest

from gate.core.denial import Rule
from gate.http.message import HttpCode
from gate.limits import Limits
from gate.metrics import Outcome
from tests.gate.harness import chunked, gate, get, post, until
from tests.gate.stub_upstream import Link, Recorded, reply

CREATE = "/v1.51/containers/create"


async def test_requests_share_both_connections() -> None:
    async with gate() as g:
        client = await g.client()
        for _ in range(5):
            answer = await client.ask(get("/v1.51/_ping"))
            assert (answer.status, answer.body) == (200, b"OK")
        assert len(g.daemon.links) == 1
        assert [one.target for one in g.daemon.requests] == ["/v1.51/_ping"] * 5
        assert g.count("system.ping", Outcome.ANSWERED) == 5


async def test_a_head_may_come_byte_by_byte() -> None:
    async with gate() as g:
        client = await g.client()
        for byte in get("/_ping", "User-Agent: slow"):
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer()).status == 200
        assert g.daemon.requests[0].header("user-agent") == "slow"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def numbered(request: Recorded, link: Link) -> None:
        await reply(request.target.encode())(request, link)

    async with gate() as g:
        g.daemon.default = numbered
        client = await g.client()
        raw = b"".join(
            [get(f"/containers/c{n}/json") for n in range(20)]
            + [
                get("/plugins"),
                post(CREATE, b'{"Image": "x"}'),
                chunked("/images/load", b"abc"),
                get("/info"),
            ]
        )
        client.send(raw)
        targets = [(await client.answer()).body.decode() for _ in range(20)]
        assert targets == [f"/containers/c{n}/json" for n in range(20)]
        assert (await client.answer()).status == 403
        assert [(await client.answer()).body for _ in range(3)] == [
            CREATE.encode(),
            b"/images/load",
            b"/info",
        ]


async def test_pipelined_flood_is_held_back_and_served() -> None:
    async with gate(Limits(pipelined_bytes=4096)) as g:
        client = await g.client()
        one = get("/_ping", "User-Agent: " + "x" * 500)
        client.send(one * 400)
        for _ in range(400):
            assert (await client.answer()).status == 200


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"GET /_ping HTTP/1.0\r\nHost: d\r\n\r\n", 505, HttpCode.VERSION),
        (b"GET /_ping HTTP/1.1\nHost: d\n\n", 400, HttpCode.LINE_END),
        (b"\x16\x03\x01\x02\x00\x01", 400, HttpCode.LINE_END),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, HttpCode.VERSION),
        (b"GET http://d/_ping HTTP/1.1\r\nHost: d\r\n\r\n", 400, HttpCode.TARGET),
        (get("/_ping", "Expect: something"), 417, HttpCode.EXPECT),
        (get("/_ping", "Content-Length: 1", "Transfer-Encoding: chunked"), 400, HttpCode.TRANSFER_ENCODING),
        (get("/_ping", "A: " + "b" * 65536), 431, HttpCode.HEAD_TOO_LARGE),
        (post("/auth", b"{}", content_type="application/x-www-form-urlencoded"), 400, HttpCode.CONTENT_TYPE),
        (get("/session", method="POST"), 426, HttpCode.UPGRADE),
        (get("/grpc", "Connection: Upgrade", "Upgrade: tcp", method="POST"), 426, HttpCode.UPGRADE),
        (get("/containers/c/attach/ws"), 426, HttpCode.UPGRADE),
    ],
)
async def test_malformed_requests_are_answered_and_the_connection_ends(
    raw: bytes, status: int, code: HttpCode
) -> None:
    async with gate() as g:
        client = await g.client()
        client.send(raw, get("/info"))
        answer = await client.answer()
        assert answer.status == status
        assert f"[{code}]" in answer.message
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""
        assert g.daemon.requests == []
        assert g.count("-", Outcome.MALFORMED) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\n",
        b"5\nhello\n0\n\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"10000000000000000\r\n",
        b"2\r\n{}x\r\n0\r\n\r\n",
    ],
)
async def test_a_malformed_chunk_ends_it(body: bytes) -> None:
    async with gate() as g:
        client = await g.client()
        head = get(CREATE, "Content-Type: application/json", "Transfer-Encoding: chunked", method="POST")
        client.send(head, body)
        answer = await client.answer()
        assert (answer.status, f"[{HttpCode.CHUNK}]" in answer.message) == (400, True)
        assert await client.rest() == b""
        assert g.daemon.requests == []


async def test_denied_endpoints_keep_the_connection() -> None:
    async with gate() as g:
        client = await g.client()
        answer = await client.ask(
            post("/v1.51/plugins/create", b"x" * 200_000, content_type="application/x-tar")
        )
        assert answer.status == 403
        assert answer.headers["content-type"] == "application/json"
        assert f"[{Rule.PLUGINS}]" in answer.message
        assert (await client.ask(chunked("/v1.51/swarm/init", b"abc"))).status == 403
        assert (await client.ask(get("/nope"))).status == 403
        assert (await client.ask(get("/_ping"))).status == 200
        assert len(g.daemon.requests) == 1
        assert len(g.gatekeeper.refusals) == 3
        assert g.count("-", Outcome.DENIED) == 3


async def test_denial_of_head_has_no_body() -> None:
    async with gate() as g:
        client = await g.client()
        answer = await client.ask(get("/nope", method="HEAD"))
        assert answer.status == 403
        assert int(answer.headers["content-length"]) > 0
        assert (await client.ask(get("/_ping"))).status == 200


async def test_a_denied_upload_is_read_to_its_end() -> None:
    async with gate() as g:
        client = await g.client()
        size = 32 * 1024 * 1024
        client.send(get("/plugins/create", f"Content-Length: {size}", method="POST"))
        for _ in range(size // 65536):
            client.send(bytes(65536))
            await client.writer.drain()
        assert (await client.answer()).status == 403
        assert (await client.ask(get("/_ping"))).status == 200


async def test_a_denied_upload_that_never_ends_is_cut_off() -> None:
    async with gate(Limits(linger_s=0.1)) as g:
        client = await g.client()
        client.send(get("/plugins/create", "Content-Length: 1000000", method="POST"))
        assert (await client.answer()).status == 403
        await until(lambda: g.metrics.connections == 0)


async def test_connection_close() -> None:
    async with gate() as g:
        client = await g.client()
        answer = await client.ask(get("/_ping", "Connection: close"))
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_too_many_connections() -> None:
    async with gate(Limits(connections=2)) as g:
        first = [await g.client() for _ in range(2)]
        for client in first:
            assert (await client.ask(get())).status == 200
        third = await g.client()
        answer = await third.answer()
        assert (answer.status, f"[{HttpCode.BUSY}]" in answer.message) == (503, True)
        assert await third.rest() == b""
        third.vanish()
        first[0].vanish()
        await until(lambda: g.metrics.connections == 1)
        assert (await (await g.client()).ask(get())).status == 200
        assert g.metrics.connections_refused == 1


async def test_connections_beyond_the_limit_do_not_pile_up() -> None:
    async with gate(Limits(connections=2)) as g:
        clients = [await g.client() for _ in range(300)]
        await until(lambda: g.metrics.connections_refused == 298)
        await until(lambda: g.metrics.connections <= 2 + 64)
        answers = [await client.answer() for client in clients[2:]]
        assert {answer.status for answer in answers} == {503}, "each is told all the same"


@pytest.mark.parametrize("start", [b"GET /_ping HT", post(CREATE, b'{"Image": "x"}')[:-3]])
async def test_slow_requests_are_told_so(start: bytes) -> None:
    async with gate(Limits(head_s=0.05, body_s=0.05)) as g:
        client = await g.client()
        client.send(start)
        answer = await client.answer()
        assert (answer.status, f"[{HttpCode.TIMEOUT}]" in answer.message) == (408, True)
        assert await client.rest() == b""


async def test_idle_connections_may_stay() -> None:
    async with gate(Limits(head_s=0.01, body_s=0.01, linger_s=0.01)) as g:
        client = await g.client()
        assert (await client.ask(get())).status == 200
        await asyncio.sleep(1.2)  # one tick of the watch
        assert (await client.ask(get())).status == 200


async def test_a_time_limit_ends_with_its_request() -> None:
    async with gate(Limits(body_s=0.3, inspected_body_bytes=100)) as g:
        client = await g.client()
        head = get(CREATE, "Content-Type: application/json", "Transfer-Encoding: chunked", method="POST")
        client.send(head)
        await asyncio.sleep(0.02)
        client.send(b"c8\r\n" + b" " * 200 + b"\r\n0\r\n\r\n")
        assert (await client.answer()).status == 413
        await asyncio.sleep(1.5)  # one tick of the watch
        assert (await client.ask(get())).status == 200
