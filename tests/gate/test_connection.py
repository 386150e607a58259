"""A client connection: heads in order, refusals that the client can read, limits, vanishing clients."""

import asyncio
import os

import pytest

from base.errors import DamagedError, MalformedError, RdcError, UnreachableError
from gate.core.denial import Denial, Rule, broken, refuse
from gate.core.policy import Forward
from gate.core.routes import Matched
from gate.http.message import HttpCode, RequestHead
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


async def test_half_closing_after_a_request_still_gets_the_answer() -> None:
    async with gate() as g:
        client = await g.client()
        client.send(get(), get("/info"))
        client.finish()
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]
        assert await client.rest() == b""
        await until(lambda: g.metrics.connections == 0)


@pytest.mark.parametrize("inspected", [True, False])
async def test_a_body_that_ends_early_goes_nowhere(inspected: bool) -> None:
    async with gate() as g:
        client = await g.client()
        client.send(post(CREATE if inspected else "/auth", b'{"Image": "x"}')[:-3])
        if not inspected:
            await until(lambda: g.daemon.requests)
        client.finish()
        answer = await client.answer()
        assert (answer.status, f"[{HttpCode.TRUNCATED}]" in answer.message) == (400, True)
        assert await client.rest() == b""
        assert g.gatekeeper.inspected == []


async def test_a_client_that_leaves_takes_its_daemon_connection_along() -> None:
    async def silent(request: Recorded, link: Link) -> None:
        await link.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert await link.reader.read() == b""
        link.eof.set()
        link.writer.close()

    async with gate() as g:
        for route in ("GET /events", "GET /containers/c/logs", "POST /containers/c/wait"):
            g.daemon.routes[route] = silent
            client = await g.client()
            method, path = route.split(" ")
            client.send(get(path, method=method))
            assert b"200" in await client.head()
            client.vanish()
            async with asyncio.timeout(5):
                await g.daemon.links[-1].eof.wait()
        await until(lambda: g.metrics.connections == 0)
        assert (
            sum(count for (_, outcome), count in g.metrics.requests.items() if outcome is Outcome.GONE) == 3
        )


async def test_a_client_that_half_closed_and_then_left_is_noticed() -> None:
    async def silent(request: Recorded, link: Link) -> None:
        await link.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await link.closed.wait()

    async with gate() as g:
        g.daemon.default = silent
        client = await g.client()
        client.send(get("/events"))
        await client.head()
        client.finish()
        await asyncio.sleep(0.05)
        assert g.metrics.connections == 1
        client.vanish()
        await until(lambda: g.metrics.connections == 0)


async def test_the_client_may_leave_while_its_request_is_decided() -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def forever(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with gate() as g:
        g.gatekeeper.decide = forever
        client = await g.client()
        client.send(post(CREATE, b"{}"))
        await entered.wait()
        client.vanish()
        async with asyncio.timeout(5):
            await cancelled.wait()
        await until(lambda: g.server.tasks == 0)
        assert g.daemon.requests == []


async def test_an_error_of_ours_closes_one_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async with gate() as g:
        other = await g.client()
        assert (await other.ask(get())).status == 200

        def broken_rule(matched: Matched) -> bool:
            raise RuntimeError

        g.gatekeeper.inspects = broken_rule  # type: ignore[method-assign]
        client = await g.client()
        client.send(get())
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.answer()
        del g.gatekeeper.inspects
        assert (await other.ask(get())).status == 200
        assert g.metrics.failures == 1
        assert any("gate.connection_failed" in record.message for record in caplog.records)


async def test_an_undecidable_request_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
        raise KeyError(body)

    async with gate() as g:
        g.gatekeeper.decide = fails
        client = await g.client()
        assert (await client.ask(post(CREATE, b"{}"))).status == 500
        assert g.daemon.requests == []
        assert (await client.ask(get())).status == 200
        assert g.count("container.create", Outcome.FAILED) == 1


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [
        (MalformedError("bad json", hint="mend it"), 400, Outcome.MALFORMED),
        (UnreachableError("no daemon"), 502, Outcome.FAILED),
        (DamagedError("store"), 500, Outcome.FAILED),
    ],
)
async def test_errors_with_words_are_answered_with_them(
    error: RdcError, status: int, outcome: Outcome
) -> None:
    async def fails(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
        raise error

    async with gate() as g:
        g.gatekeeper.decide = fails
        client = await g.client()
        answer = await client.ask(post(CREATE, b"{}"))
        assert answer.status == status
        assert error.message in answer.message
        assert error.hint in answer.message
        assert f"[{error.code}]" in answer.message
        assert g.count("container.create", outcome) == 1
        assert (await client.ask(get())).status == 200


async def test_a_client_that_reads_its_refusal_slowly_gets_all_of_it() -> None:
    async def deny(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
        return refuse([broken(Rule.RAW_DEVICE, "x" * 3_000_000)])

    async with gate(Limits(linger_s=0.05)) as g:
        g.gatekeeper.decide = deny
        client = await g.client()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.send(
            get(
                CREATE,
                "Content-Type: application/json",
                "Content-Length: 2",
                "Connection: close",
                method="POST",
            )
        )
        client.send(b"{}")
        await asyncio.sleep(2.5)  # two ticks of the watch
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert len((await client.answer()).body) > 3_000_000
        assert await client.rest() == b""


async def test_the_gatekeeper_is_told_who_asks() -> None:
    async def deny(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
        return refuse([broken(Rule.RAW_DEVICE, "one"), broken(Rule.PRIVILEGED, "two")])

    async with gate() as g:
        g.gatekeeper.decide = deny
        client = await g.client()
        answer = await client.ask(post(CREATE, b"{}"))
        assert answer.status == 403
        assert f"[{Rule.RAW_DEVICE}]" in answer.message
        assert f"[{Rule.PRIVILEGED}]" in answer.message
        ((_, body, peer),) = g.gatekeeper.inspected
        assert (body, peer.pid, peer.uid) == (b"{}", os.getpid(), os.getuid())
        assert (await client.ask(get())).status == 200
