"""Many repos in one process, coming and going; and the shared vectors through the whole gate."""

import asyncio
import base64
import gc
import json
import os
import stat

import pytest

from base.errors import UsageError
from gate.core.denial import Denial
from gate.core.routes import match
from gate.limits import Limits
from gate.ports import RepoEndpoint
from tests.gate.harness import GUID, Client, FakeGatekeeper, Harness, gate, get, post, until
from tests.gate.stub_upstream import Link, Recorded, StubUpstream
from tests.shared_data import shared


def another(g: Harness, name: str) -> RepoEndpoint:
    return RepoEndpoint(
        guid=name,
        name=name,
        socket=g.directory / f"{name}.sock",
        socket_mode=0o600,
        gid=os.getgid(),
        upstream=g.daemon.path,
    )


async def test_repos_come_and_go() -> None:
    async with gate() as g:
        endpoint = another(g, "b")
        await g.server.add_repo(endpoint, FakeGatekeeper())
        assert g.server.repos == (GUID, "b")
        assert g.server.endpoint("b") == endpoint
        assert stat.S_IMODE(endpoint.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(g.endpoint.socket.stat().st_mode) == 0o660
        client = Client(*await asyncio.open_unix_connection(endpoint.socket))
        assert (await client.ask(get())).status == 200
        with pytest.raises(UsageError):
            await g.server.add_repo(endpoint, FakeGatekeeper())
        await g.server.remove_repo("b")
        assert await client.rest() == b""
        assert not endpoint.socket.exists()
        assert g.server.repos == (GUID,)
        assert g.server.metrics("b") is None
        assert g.server.endpoint("b") is None
        await g.server.remove_repo("b")
        await g.server.add_repo(endpoint, FakeGatekeeper())
        client.vanish()
        client = Client(*await asyncio.open_unix_connection(endpoint.socket))
        assert (await client.ask(get())).status == 200
        client.vanish()
        assert (await (await g.client()).ask(get())).status == 200


async def test_servers_survive_the_garbage_collector() -> None:
    async with gate() as g:
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0)
        assert (await (await g.client()).ask(get())).status == 200


async def test_repos_reach_their_own_daemon_only() -> None:
    async with gate() as g, StubUpstream(g.directory / "other.sock") as other:
        endpoint = RepoEndpoint(guid="b", name="b", socket=g.directory / "b.sock", upstream=other.path)
        await g.server.add_repo(endpoint, FakeGatekeeper())
        client = Client(*await asyncio.open_unix_connection(endpoint.socket))
        assert (await client.ask(get("/info"))).status == 200
        assert (await (await g.client()).ask(get("/version"))).status == 200
        assert [one.target for one in other.requests] == ["/info"]
        assert [one.target for one in g.daemon.requests] == ["/version"]
        client.vanish()


async def test_closing_lets_open_requests_end() -> None:
    release = asyncio.Event()

    async def slow(request: Recorded, link: Link) -> None:
        await link.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha")
        await release.wait()
        await link.send(b"lf")

    async with gate(Limits(grace_s=5)) as g:
        g.daemon.default = slow
        client, idle = await g.client(), await g.client()
        client.send(get())
        await client.head()
        closing = asyncio.ensure_future(g.server.remove_repo(GUID))
        assert await idle.rest() == b""
        with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
            await g.client()
        assert not closing.done()
        release.set()
        assert await client.rest() == b"half"
        await closing
        await g.server.add_repo(g.endpoint, g.gatekeeper)


async def test_closing_does_not_wait_for_ever() -> None:
    async def silent(request: Recorded, link: Link) -> None:
        await link.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await link.closed.wait()

    async with gate() as g:
        g.daemon.default = silent
        client = await g.client()
        client.send(get("/events"))
        await client.head()
        await g.server.remove_repo(GUID, grace_s=0.05)
        await g.server.add_repo(g.endpoint, g.gatekeeper)


async def ask_raw(g: Harness, raw: bytes) -> bytes:
    client = await g.client()
    client.send(raw)
    client.finish()
    try:
        return await client.rest()
    except ConnectionError:
        return b""
    finally:
        client.vanish()


def canonical(request: Recorded) -> None:
    """What reached the daemon is what the gate would write, framed in one way only."""
    found = match(request.method, request.target.encode())
    assert not isinstance(found, Denial)
    assert found.target == request.target.encode()
    lengths = [value for name, value in request.headers if name.lower() == "content-length"]
    codings = [value for name, value in request.headers if name.lower() == "transfer-encoding"]
    assert len(lengths) + len(codings) <= 1
    assert [value for name, value in request.headers if name.lower() == "host"] == ["docker"]
    types = [value for name, value in request.headers if name.lower() == "content-type"]
    assert "form" not in "".join(types)


SMUGGLED = get("/v1.44/containers/SMUGGLED/start", "Content-Length: 0", "Connection: close", method="POST")
CHUNKED = "Transfer-Encoding: chunked"
UPGRADE = ("Connection: Upgrade", "Upgrade: tcp")
RAW = {
    "an honest second request": (post("/v1.44/containers/create", b'{"Image":"x"}') + SMUGGLED, True),
    "in a dropped body": (post("/v1.44/containers/a/start", SMUGGLED), False),
    "in the body of a GET": (get("/info", f"Content-Length: {len(SMUGGLED)}") + SMUGGLED, False),
    "in a denied body": (post("/v1.44/plugins/pull", SMUGGLED), False),
    "CL and TE": (get("/auth", "Content-Length: 4", CHUNKED, method="POST") + b"0\r\n\r\n" + SMUGGLED, False),
    "TE obscured": (get("/auth", f"{CHUNKED}x", method="POST") + b"0\r\n\r\n" + SMUGGLED, False),
    "after a failed upgrade": (get("/v1.44/nope", *UPGRADE, method="POST") + SMUGGLED, True),
    "prior knowledge": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED, False),
    "bare LF chunk": (get("/images/load", CHUNKED, method="POST") + b"0\n\n" + SMUGGLED, False),
}


@pytest.mark.parametrize("name", RAW)
async def test_nothing_is_smuggled(name: str) -> None:
    raw, honest = RAW[name]
    async with gate() as g:
        await ask_raw(g, raw)
        starts = [one.target for one in g.daemon.requests if "SMUGGLED" in one.target]
        assert len(starts) == int(honest)
        inspected = [route for route, _, _ in g.gatekeeper.inspected]
        assert inspected.count("container.start") == int(honest or name == "in a dropped body")
        for request in g.daemon.requests:
            canonical(request)


async def test_shared_vectors() -> None:
    path = shared("docker-api", "vectors.jsonl")
    if path is None:
        pytest.skip("the shared vectors do not lie beside this checkout")
    vectors = [json.loads(line) for line in path.read_text().splitlines()]
    async with gate() as g:
        for vector in vectors:
            before = len(g.daemon.requests), len(g.gatekeeper.inspected)
            answer = await ask_raw(g, base64.b64decode(vector["raw_b64"]))
            assert answer.startswith(b"HTTP/1.1 "), vector["name"]
            arrived = g.daemon.requests[before[0] :]
            inspected = g.gatekeeper.inspected[before[1] :]
            for request in arrived:
                canonical(request)
            kinds = [name for name, _, _ in inspected]
            made = [one for one in arrived if one.method == "POST" and "create" in one.target]
            assert len(made) <= len([kind for kind in kinds if kind.endswith("create")]), vector["name"]
            starts = [one for one in arrived if one.target.endswith("/start") and "exec" not in one.target]
            assert len(starts) <= kinds.count("container.start"), vector["name"]
            assert all(not one.body for one in starts), vector["name"]
        await until(lambda: g.metrics.connections == 0)
        assert g.metrics.failures == 0


async def test_nothing_leaks() -> None:
    async def tunnel(request: Recorded, link: Link) -> None:
        await link.send(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        await link.reader.read()
        link.writer.close()

    async def break_off(request: Recorded, link: Link) -> None:
        link.writer.transport.abort()

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count

    async with gate() as g:
        g.daemon.routes["POST /containers/c/attach"] = tunnel
        g.daemon.routes["GET /info"] = break_off
        assert (await (await g.client()).ask(get())).status == 200
        before = descriptors()
        for number in range(60):
            client = await g.client()
            client.send(
                [
                    get(),
                    get("/info"),
                    get("/containers/c/attach", *UPGRADE, method="POST"),
                    post("/v1.44/containers/create", b'{"Image":"x"}'),
                    get("/nope"),
                    b"nonsense",
                ][number % 6]
            )
            if number % 4:
                await asyncio.sleep(0.001 * (number % 4))
            client.vanish()
        await until(lambda: g.metrics.connections == 1)
        await until(lambda: descriptors() <= before)
        assert g.server.tasks == 0
