"""Two-way streams open only after a decision, and with what was decided."""

import asyncio

import pytest

from gate.core.denial import Denial, Rule, broken, refuse
from gate.core.policy import Forward
from gate.core.routes import Matched
from gate.http.message import RequestHead
from gate.metrics import Outcome
from tests.gate.harness import gate, get, post, until
from tests.gate.test_tunnel import ATTACH, CASES, SWITCH, UPGRADE, echo

ID = "f" * 64
EXEC = post("/exec/e/start", b'{"Detach":false,"Tty":false,"Cmd":["x"]}', *UPGRADE)


async def rebuilt(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
    return Forward(
        target=f"/exec/{ID}/start".encode(), content_type=b"application/json", body=b'{"Tty":true}'
    )


async def refused(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
    return refuse([broken(Rule.GRANT_MISSING, "no")])


async def test_the_daemon_gets_what_was_decided_and_then_the_stream() -> None:
    async with gate() as g:
        g.gatekeeper.decide = rebuilt
        g.daemon.default = echo(SWITCH)
        client = await g.client()
        client.send(EXEC, b"early")
        assert await client.head() == SWITCH
        assert await client.exactly(5) == b"early"
        client.finish()
        assert await client.rest() == b"[end]"
        sent = g.daemon.requests[0]
        assert (sent.target, sent.body) == (f"/exec/{ID}/start", b'{"Tty":true}')
        assert (sent.header("upgrade"), sent.header("connection")) == ("tcp", "Upgrade")
        assert sent.header("content-length") == "12"


async def test_what_comes_before_the_decision_waits_for_it() -> None:
    decided = asyncio.Event()

    async def slowly(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
        await decided.wait()
        return await rebuilt(matched, head, body)

    async with gate() as g:
        g.gatekeeper.decide = slowly
        g.daemon.default = echo(SWITCH)
        client = await g.client()
        client.send(EXEC, b"x" * 300_000)
        client.finish()
        await until(lambda: g.gatekeeper.inspected)
        assert not g.daemon.links
        decided.set()
        assert await client.head() == SWITCH
        assert await client.rest() == b"x" * 300_000 + b"[end]"


@pytest.mark.parametrize(("raw", "start"), CASES)
async def test_a_denial_opens_nothing(raw: bytes, start: bytes) -> None:
    async with gate() as g:
        g.gatekeeper.decide = refused
        g.daemon.default = echo(start)
        client = await g.client()
        client.send(raw)
        answer = await client.answer()
        assert (answer.status, f"[{Rule.GRANT_MISSING}]" in answer.message) == (403, True)
        assert not g.daemon.links
        assert (g.metrics.tunnels, sum(g.metrics.requests.values())) == (0, 1)
        g.daemon.default = echo(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert (await client.ask(get())).status == 200


async def test_a_client_that_leaves_before_the_decision_reaches_nothing() -> None:
    async with gate() as g:
        waiting = asyncio.Event()

        async def never(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
            waiting.set()
            await asyncio.sleep(3600)
            raise AssertionError

        g.gatekeeper.decide = never
        client = await g.client()
        client.send(get(ATTACH, *UPGRADE, method="POST"))
        await waiting.wait()
        client.vanish()
        await until(lambda: g.count("container.attach", Outcome.GONE))
        assert not g.daemon.links
