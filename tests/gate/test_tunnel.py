"""Two-way streams: when they open, what passes, how they end."""

import asyncio
import contextlib
import socket

import pytest

from gate.metrics import Outcome
from tests.gate.harness import gate, get, post, until
from tests.gate.stub_upstream import Link, Recorded, reply

SWITCH = (
    b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
    b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
)
RAW = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"
MULTIPLEXED = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n\r\n"
UPGRADE = ("Connection: Upgrade", "Upgrade: tcp")
ATTACH = "/containers/c/attach?stream=1&stdin=1"


def attach(*lines: str, target: str = ATTACH) -> bytes:
    return get(target, *lines, method="POST")


def echo(start: bytes):
    async def handle(request: Recorded, link: Link) -> None:
        await link.send(start)
        while data := await link.reader.read(65536):
            await link.send(data)
        link.eof.set()
        await link.send(b"[end]")
        link.writer.close()

    return handle


CASES = [
    (attach(*UPGRADE), SWITCH),
    (attach(), RAW),
    (attach(), MULTIPLEXED),
    (post("/exec/e/start", b'{"Detach":false}', *UPGRADE), SWITCH),
    (post("/exec/e/start", b'{"Detach":false}'), RAW),
    (get("/exec/e/start", "Content-Length: 0", method="POST"), RAW),
    (get("/session", "Connection: Upgrade", "Upgrade: h2c", method="POST"), SWITCH.replace(b"tcp", b"h2c")),
    (get("/grpc", "Connection: Upgrade", "Upgrade: h2c", method="POST"), SWITCH.replace(b"tcp", b"h2c")),
    (
        get("/containers/c/attach/ws", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k"),
        SWITCH.replace(b"tcp", b"websocket"),
    ),
]


@pytest.mark.parametrize(("raw", "start"), CASES)
async def test_both_ways_and_half_close(raw: bytes, start: bytes) -> None:
    async with gate() as g:
        g.daemon.default = echo(start)
        client = await g.client()
        client.send(raw)
        assert await client.head() == start
        assert g.metrics.tunnels == 1
        client.send(b"hello")
        assert await client.exactly(5) == b"hello"
        client.send(b"last")
        client.finish()
        assert await client.rest() == b"last[end]"
        assert g.daemon.links[0].eof.is_set()
        await until(lambda: g.metrics.tunnels == 0)
        assert sum(n for (_, outcome), n in g.metrics.requests.items() if outcome is Outcome.TUNNEL) == 1


@pytest.mark.parametrize(("raw", "start"), CASES)
async def test_what_the_daemon_sends_with_its_head_follows_it(raw: bytes, start: bytes) -> None:
    async def talk(request: Recorded, link: Link) -> None:
        await link.send(start + b"first bytes")
        link.writer.close()

    async with gate() as g:
        g.daemon.default = talk
        client = await g.client()
        client.send(raw)
        assert await client.rest() == start + b"first bytes"


async def test_only_the_route_s_upgrade_is_passed_on() -> None:
    async with gate() as g:
        client = await g.client()
        for raw in (
            attach("Connection: Upgrade", "Upgrade: h2c"),
            attach("Upgrade: tcp"),
            attach("Connection: keep-alive", "Upgrade: banana"),
            get("/_ping", *UPGRADE),
            post("/v1.51/containers/create", b"{}", *UPGRADE),
        ):
            assert (await client.ask(raw)).status == 200
            assert g.daemon.requests[-1].header("upgrade") is None
            assert g.daemon.requests[-1].header("connection") is None
        await client.ask(attach(*UPGRADE))
        assert g.daemon.requests[-1].header("upgrade") == "tcp"


async def test_early_bytes_go_into_the_tunnel_after_the_switch_only() -> None:
    seen: list[bytes] = []
    release = asyncio.Event()

    async def late(request: Recorded, link: Link) -> None:
        await asyncio.wait([asyncio.ensure_future(release.wait())])
        assert link.reader._buffer == b""  # type: ignore[attr-defined]
        await link.send(SWITCH)
        seen.append(await link.reader.read())
        link.writer.close()

    async with gate() as g:
        g.daemon.default = late
        client = await g.client()
        smuggled = get("/containers/x/start", "Content-Length: 0", method="POST")
        client.send(post("/exec/e/start", b"{}", *UPGRADE), smuggled)
        client.finish()
        await until(lambda: g.daemon.requests)
        await asyncio.sleep(0.05)
        release.set()
        assert await client.rest() == SWITCH
        assert seen == [smuggled]
        assert len(g.daemon.requests) == 1


@pytest.mark.parametrize("lines", [UPGRADE, ()])
async def test_after_a_failed_upgrade_the_next_bytes_are_a_request_like_any_other(
    lines: tuple[str, ...],
) -> None:
    async with gate() as g:
        g.daemon.default = reply(b'{"message":"no such exec"}', "404 Not Found")
        client = await g.client()
        client.send(
            post("/exec/e/start", b'{"Detach":true}', *lines),
            get("/plugins"),
            get("/containers/a/start", method="POST"),
        )
        assert [(await client.answer()).status for _ in range(3)] == [404, 403, 404]
        assert [one.target for one in g.daemon.requests] == ["/exec/e/start", "/containers/a/start"]
        assert [name for name, _, _ in g.gatekeeper.inspected] == ["exec.start", "container.start"]
        assert g.metrics.tunnels == 0


async def test_a_detached_exec_is_an_ordinary_request() -> None:
    async with gate() as g:
        g.daemon.default = reply(b"", "200 OK", "Content-Type: application/vnd.docker.raw-stream\r\n")
        client = await g.client()
        client.send(post("/exec/e/start", b'{"Detach":true}', *UPGRADE), get("/swarm"))
        assert [(await client.answer()).status for _ in range(2)] == [200, 403]


async def test_raw_errors_without_length_end_the_connection() -> None:
    async def fail(request: Recorded, link: Link) -> None:
        await link.send(RAW.replace(b"200 OK", b"404 Not Found") + b"no such container\r\n")
        link.writer.close()

    async with gate() as g:
        g.daemon.default = fail
        client = await g.client()
        client.send(attach(), get("/containers/x/start", method="POST"))
        answer = await client.answer()
        assert (answer.status, answer.body) == (404, b"no such container\r\n")
        assert len(g.daemon.requests) == 1


async def test_a_raw_200_elsewhere_is_no_tunnel() -> None:
    async def raw(request: Recorded, link: Link) -> None:
        await link.send(RAW + b"log line")
        link.writer.close()

    async with gate() as g:
        g.daemon.default = raw
        client = await g.client()
        client.send(get("/containers/c/logs"), b"more")
        assert (await client.answer()).body == b"log line"
        assert g.metrics.tunnels == 0


async def test_the_daemon_may_half_close_first() -> None:
    got: list[bytes] = []

    async def half(request: Recorded, link: Link) -> None:
        await link.send(SWITCH + b"bye")
        link.writer.write_eof()
        got.append(await link.reader.read())
        link.writer.close()

    async with gate() as g:
        g.daemon.default = half
        client = await g.client()
        client.send(attach(*UPGRADE))
        assert await client.rest() == SWITCH + b"bye"
        client.send(b"still sending")
        await client.writer.drain()
        client.finish()
        await until(lambda: got)
        assert got == [b"still sending"]
        await until(lambda: g.metrics.tunnels == 0)


async def test_either_side_may_vanish() -> None:
    async def wait(request: Recorded, link: Link) -> None:
        await link.send(SWITCH)
        await link.reader.read()
        link.eof.set()

    async def drop(request: Recorded, link: Link) -> None:
        await link.send(SWITCH)
        await asyncio.sleep(0.02)
        link.writer.transport.abort()

    async with gate() as g:
        g.daemon.default = wait
        client = await g.client()
        client.send(attach(*UPGRADE))
        await client.head()
        client.vanish()
        async with asyncio.timeout(5):
            await g.daemon.links[0].eof.wait()
        g.daemon.default = drop
        client = await g.client()
        client.send(attach(*UPGRADE))
        assert await client.rest() == SWITCH
        assert g.metrics.tunnels == 0
        client.finish()
        await until(lambda: g.metrics.connections == 0)


async def test_the_last_output_survives_input_that_fails() -> None:
    """A container that exits while its input is still being sent: its output is in the daemon's socket."""
    output = b"o" * 150_000

    async def exits(request: Recorded, link: Link) -> None:
        await link.send(SWITCH)
        await link.reader.readexactly(100_000)
        await link.send(output)
        link.writer.close()

    async with gate() as g:
        g.daemon.default = exits
        loop = asyncio.get_running_loop()
        for _ in range(10):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.setblocking(False)
                await loop.sock_connect(sock, str(g.endpoint.socket))
                await loop.sock_sendall(sock, attach(*UPGRADE))
                sending = asyncio.ensure_future(_keep_sending(sock))
                received = b""
                while data := await loop.sock_recv(sock, 65536):
                    received += data
                assert received == SWITCH + output
                sending.cancel()
                await asyncio.wait([sending])


async def test_unread_output_survives_input_that_fails() -> None:
    """As above, with a client that reads late: the output waits in the daemon's socket, which is not read."""
    output = b"o" * 600_000

    async def exits(request: Recorded, link: Link) -> None:
        await link.send(SWITCH + output)
        link.writer.close()
        await link.writer.wait_closed()
        link.eof.set()

    async with gate() as g:
        g.daemon.default = exits
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, str(g.endpoint.socket))
            await loop.sock_sendall(sock, attach(*UPGRADE))
            async with asyncio.timeout(5):
                await until(lambda: g.daemon.links)
                await g.daemon.links[0].eof.wait()
            await loop.sock_sendall(sock, b"input that nobody takes")
            await asyncio.sleep(0.05)
            received = b""
            while data := await loop.sock_recv(sock, 65536):
                received += data
            assert len(received) == len(SWITCH + output)


async def _keep_sending(sock: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            await asyncio.get_running_loop().sock_sendall(sock, bytes(50_000))


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_slow_reader_stops_the_other_side(direction: str) -> None:
    total = 64 * 1024 * 1024
    moved = 0

    async def source(request: Recorded, link: Link) -> None:
        nonlocal moved
        await link.send(SWITCH)
        for _ in range(total // 65536):
            await link.send(bytes(65536))
            moved += 65536
        link.writer.close()

    release = asyncio.Event()

    async def sink(request: Recorded, link: Link) -> None:
        nonlocal moved
        await link.send(SWITCH)
        await release.wait()
        while data := await link.reader.read(65536):
            moved += len(data)
        link.writer.close()

    async with gate() as g:
        g.daemon.default = source if direction == "down" else sink
        client = await g.client()
        client.send(attach(*UPGRADE))
        await client.head()
        if direction == "down":
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            before = -1
            while before != moved:
                before = moved
                await asyncio.sleep(0.1)
            assert moved < 16 * 1024 * 1024
            client.reader._transport.resume_reading()  # type: ignore[attr-defined]
            assert len(await client.rest()) == total
            return
        sent = 0
        try:
            async with asyncio.timeout(0.5):
                while True:
                    client.send(bytes(65536))
                    await client.writer.drain()
                    sent += 65536
        except TimeoutError:
            pass
        assert sent < 16 * 1024 * 1024
        release.set()
        await client.writer.drain()
        client.finish()
        await client.rest()
        assert moved >= sent
