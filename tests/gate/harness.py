"""A gate between raw clients and a recording daemon, all on real unix sockets and on uvloop."""

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from gate.core.denial import Denial
from gate.core.inspected import PARSERS
from gate.core.policy import Forward
from gate.core.routes import Matched
from gate.http.message import HttpCode, HttpError, RequestHead
from gate.limits import Limits
from gate.metrics import GateMetrics, Outcome
from gate.ports import Peer, RepoEndpoint
from gate.server import GateServer
from tests.gate.stub_upstream import StubUpstream

PATIENCE_S = 10.0
"""Long enough never to matter; a test that waits this long has failed."""

GUID = "6f2c"


@dataclass
class FakeGatekeeper:
    """Inspects what its routes say, and answers with what the test says."""

    decide: Callable[[Matched, RequestHead, bytes], Awaitable[Forward | Denial]] | None = None
    api_version: str | None = None
    inspected: list[tuple[str, bytes, Peer]] = field(default_factory=list)
    refusals: list[tuple[Denial, Peer]] = field(default_factory=list)
    unread: list[tuple[HttpCode, Peer]] = field(default_factory=list)

    def inspects(self, matched: Matched) -> bool:
        return matched.route.name in PARSERS

    async def inspect(
        self, matched: Matched, head: RequestHead, body: bytes, *, peer: Peer
    ) -> Forward | Denial:
        self.inspected.append((matched.route.name, body, peer))
        if self.decide is not None:
            return await self.decide(matched, head, body)
        rebuilt = json.dumps(json.loads(body), sort_keys=True).encode() if body else None
        return Forward(target=matched.target, content_type=matched.route.content_type, body=rebuilt)

    def refused(self, head: RequestHead, denial: Denial, *, peer: Peer) -> None:
        self.refusals.append((denial, peer))

    def unreadable(self, error: HttpError, *, peer: Peer) -> None:
        self.unread.append((error.rule, peer))


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    head: bytes

    @property
    def message(self) -> str:
        text = json.loads(self.body)["message"]
        assert isinstance(text, str)
        return text


class Client:
    """A raw client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    async def head(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def answer(self, method: str = "GET") -> Answer:
        head = await self.head()
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:-2])}
        body = b""
        async with asyncio.timeout(PATIENCE_S):
            if method == "HEAD" or status in {101, 204, 304} or status < 200:
                pass
            elif headers.get("transfer-encoding") == "chunked":
                while size := int((await self.reader.readuntil(b"\r\n"))[:-2], 16):
                    body += await self.reader.readexactly(size)
                    await self.reader.readexactly(2)
                await self.reader.readexactly(2)
            elif "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = await self.reader.read()
        return Answer(status, headers, body, head)

    async def exactly(self, size: int) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """Everything up to the end."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    async def ask(self, raw: bytes) -> Answer:
        self.send(raw)
        return await self.answer(raw.split(b" ", 1)[0].decode())

    def finish(self) -> None:
        self.writer.write_eof()

    def vanish(self) -> None:
        self.writer.transport.abort()


@dataclass
class Harness:
    directory: Path
    daemon: StubUpstream
    gatekeeper: FakeGatekeeper
    server: GateServer
    endpoint: RepoEndpoint
    clients: list[Client] = field(default_factory=list)

    async def client(self) -> Client:
        client = Client(*await asyncio.open_unix_connection(self.endpoint.socket, limit=2**20))
        self.clients.append(client)
        return client

    @property
    def metrics(self) -> GateMetrics:
        metrics = self.server.metrics(GUID)
        assert metrics is not None
        return metrics

    def count(self, name: str, outcome: Outcome) -> int:
        return self.metrics.requests[name, outcome]


async def until(claim: Callable[[], object]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not claim():  # noqa: ASYNC110 - what is waited for belongs to other people's objects
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def gate(limits: Limits | None = None) -> AsyncIterator[Harness]:
    """A gate with one repo. Afterwards nothing may be left: no connection, no tunnel, no task."""
    directory = Path(tempfile.mkdtemp(prefix="gate", dir="/tmp"))
    server = GateServer(limits=limits)
    try:
        async with StubUpstream(directory / "daemon.sock") as daemon:
            gatekeeper = FakeGatekeeper()
            endpoint = RepoEndpoint(
                guid=GUID, name="gpu-a", socket=directory / "docker.sock", upstream=daemon.path
            )
            await server.add_repo(endpoint, gatekeeper)
            harness = Harness(directory, daemon, gatekeeper, server, endpoint)
            metrics = harness.metrics
            try:
                yield harness
            finally:
                for client in harness.clients:
                    client.vanish()
                await server.close(grace_s=0)
            assert (metrics.connections, metrics.tunnels, server.tasks) == (0, 0, 0)
            assert not endpoint.socket.exists()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def get(target: str = "/_ping", *lines: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: d", *lines, "", ""]).encode("latin-1")


def post(target: str, body: bytes = b"", *lines: str, content_type: str = "application/json") -> bytes:
    kind = [f"Content-Type: {content_type}"] if content_type else []
    return get(target, *kind, f"Content-Length: {len(body)}", *lines, method="POST") + body


def chunked(
    target: str, *chunks: bytes, method: str = "POST", content_type: str = "application/x-tar"
) -> bytes:
    head = get(target, f"Content-Type: {content_type}", "Transfer-Encoding: chunked", method=method)
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
