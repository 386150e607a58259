"""A client connection: clients that end, leave or cannot be decided on."""

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
from tests.gate.harness import gate, get, post, until
from tests.gate.stub_upstream import Link, Recorded

CREATE = "/v1.51/containers/create"


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
