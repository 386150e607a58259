"""A daemon that records what reaches it and answers as told: a real unix-socket server, not a mock of ours.

It reads requests in its own simple way (what the gate sends is well-formed, or the test fails), so that the
gate's reader is not tested against itself.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self


@dataclass
class Recorded:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    trailing: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class Link:
    """One connection to the stub."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[Recorded] = field(default_factory=list)
    eof: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Handler = Callable[[Recorded, Link], Awaitable[None]]


def reply(body: bytes = b"OK", status: str = "200 OK", headers: str = "") -> Handler:
    async def handle(request: Recorded, link: Link) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode()
        await link.send(head + (b"" if request.method == "HEAD" else body))

    return handle


class StubUpstream:
    """`async with StubUpstream(path) as daemon:`. Routes are `"METHOD /path"` without query and version."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.links: list[Link] = []
        self.requests: list[Recorded] = []
        self.heads_only: set[str] = set()
        self.routes: dict[str, Handler] = {}
        self.default: Handler = reply()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=2**20)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        link = Link(reader, writer)
        self.links.append(link)
        try:
            while await self._one(link):
                pass
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            link.closed.set()
            writer.transport.abort()

    async def _one(self, link: Link) -> bool:
        try:
            raw = await link.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            link.eof.set()
            return False
        lines = raw.decode("latin-1").split("\r\n")
        method, target, version = lines[0].split(" ")
        assert version == "HTTP/1.1"
        headers = [tuple(line.split(": ", 1)) for line in lines[1:-2]]
        request = Recorded(method, target, headers)  # type: ignore[arg-type]
        link.requests.append(request)
        self.requests.append(request)
        path = target.partition("?")[0]
        if path.startswith("/v1."):
            path = path[5:].partition("/")[1] + path[5:].partition("/")[2]
        handler = self.routes.get(f"{method} {path}", self.default)
        if f"{method} {path}" not in self.heads_only:
            request.body = await read_body(request, link.reader)
        await handler(request, link)
        return not link.writer.is_closing()


async def read_body(request: Recorded, reader: asyncio.StreamReader) -> bytes:
    if request.header("transfer-encoding") == "chunked":
        parts = []
        while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
            parts.append(await reader.readexactly(size))
            assert await reader.readexactly(2) == b"\r\n"
        assert await reader.readexactly(2) == b"\r\n"
        return b"".join(parts)
    return await reader.readexactly(int(request.header("content-length") or 0))
