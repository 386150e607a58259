"""The daemon's side: gone, restarted, breaking off, or talking nonsense."""

import asyncio
import contextlib
import socket

import pytest

from gate.metrics import Outcome
from tests.gate.harness import gate, get, post, until
from tests.gate.stub_upstream import Link, Recorded, reply

CREATE = "/v1.51/containers/create"


async def test_no_daemon() -> None:
    async with gate() as g:
        await g.daemon.stop()
        client = await g.client()
        for raw in (get(), post(CREATE, b"{}"), post("/images/load", b"x" * 300_000)):
            answer = await client.ask(raw)
            assert answer.status == 502
            assert str(g.endpoint.upstream) in answer.message
            assert "[daemon-unreachable]" in answer.message
        client.send(get("/_ping", method="HEAD"))
        assert (await client.answer("HEAD")).status == 502
        await g.daemon.start()
        assert (await client.ask(get())).status == 200
        assert g.count("system.ping", Outcome.UNREACHABLE) == 1


async def test_a_daemon_that_restarts_between_requests() -> None:
    async with gate() as g:
        client = await g.client()
        assert (await client.ask(get())).status == 200
        for raw in (get(), post(CREATE, b"{}"), get("/exec/e/start", "Content-Length: 0", method="POST")):
            await g.daemon.stop()
            await g.daemon.start()
            assert (await client.ask(raw)).status == 200
        assert len(g.daemon.requests) == 4


async def test_reads_are_asked_again_when_an_idle_connection_closes_under_them() -> None:
    async def then_close_on_next(request: Recorded, link: Link) -> None:
        if len(link.requests) > 1:
            link.writer.close()
        else:
            await reply()(request, link)

    async with gate() as g:
        g.daemon.default = then_close_on_next
        client = await g.client()
        assert (await client.ask(get())).status == 200
        assert (await client.ask(get())).status == 200
        assert (len(g.daemon.links), g.metrics.upstream_retries) == (2, 1)


async def test_changes_are_not_asked_twice() -> None:
    async def then_close_on_next(request: Recorded, link: Link) -> None:
        if len(link.requests) > 1:
            link.writer.close()
        else:
            await reply()(request, link)

    async with gate() as g:
        g.daemon.default = then_close_on_next
        client = await g.client()
        assert (await client.ask(get())).status == 200
        assert (await client.ask(post("/containers/a/start"))).status == 502
        assert [one.method for one in g.daemon.requests] == ["GET", "POST"]


async def test_a_fresh_connection_that_closes_is_not_tried_again() -> None:
    async def close(request: Recorded, link: Link) -> None:
        link.writer.close()

    async with gate() as g:
        g.daemon.default = close
        client = await g.client()
        assert (await client.ask(get())).status == 502
        assert len(g.daemon.links) == 1


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_an_answer_that_breaks_off_breaks_off_here_too(start: bytes) -> None:
    async def half(request: Recorded, link: Link) -> None:
        await link.send(start)
        link.writer.close()

    async with gate() as g:
        g.daemon.default = half
        client = await g.client()
        client.send(get())
        assert await client.exactly(len(start)) == start
        with contextlib.suppress(ConnectionError):
            assert await client.rest() == b""
        assert g.count("system.ping", Outcome.UNREACHABLE) == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
        b"HTTP/1.1 200",
        b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nraw",
    ],
)
async def test_nonsense_is_502(nonsense: bytes) -> None:
    async def talk(request: Recorded, link: Link) -> None:
        await link.send(nonsense)
        link.writer.close()

    async with gate() as g:
        g.daemon.default = talk
        client = await g.client()
        assert (await client.ask(get())).status == 502
        g.daemon.default = reply()
        assert (await client.ask(get())).status == 200


async def test_bytes_after_an_answer_are_nobody_s_answer() -> None:
    async def twice(request: Recorded, link: Link) -> None:
        await link.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOKHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"
        )

    async with gate() as g:
        g.daemon.default = twice
        client = await g.client()
        for _ in range(3):
            assert (await client.ask(get())).body == b"OK"
        assert len(g.daemon.links) == 3


async def test_unasked_bytes_on_an_idle_connection_close_it() -> None:
    async with gate() as g:
        client = await g.client()
        assert (await client.ask(get())).status == 200
        await g.daemon.links[0].send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL")
        await until(g.daemon.links[0].closed.is_set)
        assert (await client.ask(get())).body == b"OK"


async def test_clients_never_share_a_daemon_connection() -> None:
    async with gate() as g:
        clients = [await g.client() for _ in range(8)]
        answers = await asyncio.gather(*(client.ask(get()) for client in clients))
        assert {answer.status for answer in answers} == {200}
        assert len(g.daemon.links) == 8


async def test_a_client_that_is_gone_is_not_asked_for_again() -> None:
    async def never(request: Recorded, link: Link) -> None:
        if len(link.requests) == 1:
            await reply()(request, link)
        else:
            await link.reader.read()

    async with gate() as g:
        g.daemon.default = never
        client = await g.client()
        assert (await client.ask(get())).status == 200
        client.send(get())
        await until(lambda: len(g.daemon.requests) == 2)
        client.vanish()
        await until(lambda: all(link.closed.is_set() for link in g.daemon.links))
        assert (len(g.daemon.links), g.metrics.upstream_retries) == (1, 0)
        assert g.count("system.ping", Outcome.GONE) == 1


async def test_a_client_may_leave_before_the_daemon_is_connected() -> None:
    async with gate() as g:
        for _ in range(20):
            client = await g.client()
            client.send(post("/images/load", b"x" * 1000)[:-500])
            client.vanish()
        await until(lambda: g.metrics.connections == 0)
        await until(lambda: g.server.tasks == 0)


async def test_an_answer_that_turns_into_nonsense_breaks_off() -> None:
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def mangled(request: Recorded, link: Link) -> None:
        await link.send(start)
        await asyncio.sleep(0.02)
        await link.send(b"nonsense\r\n")
        await link.closed.wait()

    async with gate() as g:
        g.daemon.default = mangled
        client = await g.client()
        client.send(get())
        assert await client.exactly(len(start)) == start
        with contextlib.suppress(ConnectionError):
            assert await client.rest() == b""
        assert g.count("system.ping", Outcome.UNREACHABLE) == 1


async def test_a_daemon_with_a_full_backlog_gets_time() -> None:
    async with gate() as g:
        await g.daemon.stop()
        with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as others:
            listening.bind(str(g.daemon.path))
            listening.listen(0)
            while True:
                other = others.enter_context(socket.socket(socket.AF_UNIX))
                other.setblocking(False)
                if other.connect_ex(str(g.daemon.path)) != 0:
                    break
            client = await g.client()
            client.send(get())
            await asyncio.sleep(0.15)
            listening.setblocking(False)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(5):
                while True:
                    accepted, _ = await loop.sock_accept(listening)
                    others.enter_context(accepted)
                    accepted.setblocking(False)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.3):
                            if b"GET /_ping" in await loop.sock_recv(accepted, 1000):
                                break
            await loop.sock_sendall(accepted, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert (await client.answer()).status == 200
        await g.daemon.start()
