"""One connection to a repo's daemon: sends requests that the gate wrote, frames the answers.

An answer's end is found by its own framing; only then, and only when the daemon keeps the connection, may
the next request of the same client use it. One client connection's requests never share a connection with
another's.
"""

import asyncio
import errno
import os
import socket
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from base.errors import UnreachableError
from gate.http.body import ChunkedReader
from gate.http.message import Framing, HttpError, ResponseHead
from gate.http.parse import find_head, parse_response_head
from gate.metrics import GateMetrics
from gate.stream import BufferPool, Stop, Stream, salvage

_BACKLOG_RETRIES = 50
_BACKLOG_WAIT_S = 0.1
_CACHED_HEADS = 512
_CACHED_HEAD_BYTES = 1024


class ResponseSink(Protocol):
    """Who gets the answer. Every call may begin the next request on the same connection."""

    def response_started(self, head: ResponseHead, data: bytes, end: int, *, complete: bool) -> None:
        """The head is `data[:end]`; the first bytes of the body, or of a tunnel, follow."""
        ...

    def response_data(self, data: memoryview | bytes, *, complete: bool) -> None:
        """More of the body, framing included; `data` is valid until this returns."""
        ...

    def response_failed(self, reason: str, *, answered: bool) -> None:
        """There will be no (more) answer. `answered`: bytes of it had arrived."""
        ...


class ResponseHeads:
    """Parsed heads by their exact bytes, which a daemon repeats until its `Date` changes. Bounded."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[tuple[bytes, bool], ResponseHead] = {}

    def parse(self, raw: bytes, *, method: str) -> ResponseHead:
        """As `parse_response_head`."""
        key = (raw, method == "HEAD")
        known = self._heads.get(key)
        if known is None:
            known = parse_response_head(raw, method=method)
            if len(raw) <= _CACHED_HEAD_BYTES:
                if len(self._heads) >= _CACHED_HEADS:
                    self._heads.clear()
                self._heads[key] = known
        return known


class _Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()
    TUNNEL = auto()


class Upstream(Stream):
    """A connection to the daemon, from before it is open until after it is closed."""

    __slots__ = (
        "_chunks",
        "_heads",
        "_keep_alive",
        "_left",
        "_method",
        "_metrics",
        "_partial",
        "_path",
        "_pending",
        "_phase",
        "_sink",
        "_sock",
        "reused",
    )

    def __init__(self, path: Path, pool: BufferPool, heads: ResponseHeads, metrics: GateMetrics) -> None:
        super().__init__(pool)
        self._path = path
        self._metrics = metrics
        metrics.upstream_connects += 1
        self._heads = heads
        self._sink: ResponseSink | None = None
        self._sock: socket.socket | None = None
        self._phase = _Phase.IDLE
        self._pending: list[bytes] = []
        self._partial = b""
        self._left = 0
        self._keep_alive = False
        self._chunks: ChunkedReader | None = None
        self._method = ""
        self.reused = False

    @property
    def connected(self) -> bool:
        """Whether the socket is open."""
        return self.transport is not None

    @property
    def usable(self) -> bool:
        """Whether another request may be sent: nothing is on the way and the daemon has not closed."""
        return (
            self._phase is _Phase.IDLE and not self.closing and not self.eof_sent and not self.eof_received_
        )

    async def connect(self) -> None:
        """Open the connection and send what was written meanwhile.

        Raises:
            UnreachableError: nobody listens there.
        """
        try:
            sock = await _connected(self._path)
        except OSError as exc:
            raise UnreachableError(exc.strerror or str(exc)) from exc
        self._sock = sock
        if self.closing:
            sock.close()
            return
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)
        except OSError as exc:
            sock.close()
            raise UnreachableError(exc.strerror or str(exc)) from exc

    def alive(self) -> bool:
        """Whether an idle connection is still open at this very moment; for requests not to be sent twice."""
        if self._sock is None:
            return False
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def begin(self, sink: ResponseSink, method: str, wire: bytes) -> None:
        """Send a request's head (and what follows it); the answer goes to `sink`."""
        self._sink = sink
        self._method = method
        self._phase = _Phase.HEAD
        self.send(wire)

    def tunnel(self) -> None:
        """From now on the bytes are the partner's, both ways."""
        self._phase = _Phase.TUNNEL

    # Stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what was written while there was no connection."""
        super().connection_made(transport)
        if self.closing:
            transport.close()
            return
        if self._stops and self.transport is not None:
            self.transport.pause_reading()
        if self._pending:
            super().send(b"".join(self._pending))
            self._pending.clear()
        if self.partner is not None:
            self.partner.start_reading(Stop.HOLD)

    def send(self, data: bytes) -> None:
        """Write, or keep until connected."""
        if self.transport is None and not self.closing:
            self._pending.append(data)
        else:
            super().send(data)

    def relay(self, *pieces: bytes | memoryview) -> None:
        """Write, or keep until connected; the partner is not read meanwhile, so this stays small."""
        if self.transport is None and not self.closing:
            self._pending.extend(bytes(piece) for piece in pieces)
            if self.partner is not None:
                self.partner.stop_reading(Stop.HOLD)
        else:
            super().relay(*pieces)

    def received(self, view: memoryview) -> None:
        """Frame the answer."""
        self._metrics.bytes_from_daemons += len(view)
        phase = self._phase
        if phase is _Phase.HEAD:
            self._read_head(view)
        elif phase is _Phase.TUNNEL:
            if self.partner is not None:
                self.partner.relay(view)
        elif phase is _Phase.LENGTH:
            self._read_length(view)
        elif phase is _Phase.CHUNKED:
            self._read_chunks(view)
        elif phase is _Phase.CLOSE:
            if self._sink is not None:
                self._sink.response_data(view, complete=False)
        else:
            self.abort()  # bytes that nobody asked for

    def ended(self) -> bool:
        """The daemon will not send any more."""
        if self._phase is _Phase.TUNNEL:
            if self.partner is None:
                return False
            if self.hung_up():
                self.partner.partner_gone()
                return False
            self.partner.finish_sending()
            return not self.eof_sent
        self._finish("closed the connection")
        return False

    def lost(self, error: Exception | None) -> None:
        """The connection is gone; what the daemon said before counts."""
        if error is not None and self._sock is not None and self._phase is not _Phase.IDLE:
            data, _ = salvage(self._sock)
            if data:
                self.received(memoryview(data))
        tunnelled = self._phase is _Phase.TUNNEL
        self._finish(f"broke off ({error})" if error is not None else "closed the connection")
        if tunnelled and self.partner is not None:
            self.partner.partner_gone()

    def abort(self) -> None:
        """Close now; whoever does so wants no answer any more."""
        self._sink = None
        super().abort()

    def crashed(self, error: Exception) -> None:
        """Leave the reporting to the client's connection, which owns this one."""
        partner = self.partner
        self.abort()
        if partner is not None:
            partner.crashed(error)

    # Answers

    def _finish(self, reason: str) -> None:
        sink, phase = self._sink, self._phase
        if sink is None or phase in (_Phase.IDLE, _Phase.TUNNEL):
            return
        self._sink = None
        self.closing = True
        if phase is _Phase.CLOSE:
            sink.response_data(b"", complete=True)
        else:
            sink.response_failed(reason, answered=phase is not _Phase.HEAD or bool(self._partial))

    def _done(self) -> None:
        self._phase = _Phase.IDLE
        self._sink = None
        self._chunks = None
        self.reused = True
        if not self._keep_alive:
            self.closing = True

    def _read_head(self, view: memoryview) -> None:
        data = self._partial + bytes(view) if self._partial else bytes(view)
        try:
            while True:
                end = find_head(data, len(self._partial))
                if not end:
                    self._partial = data
                    return
                self._partial = b""
                head = self._heads.parse(data[:end], method=self._method)
                if head.status >= 200 or head.status == 101:
                    break
                data = data[end:]  # an interim answer, to an expectation that was never passed on
                if not data:
                    return
            self._start_body(head, data, end)
        except HttpError as error:
            sink, self._sink = self._sink, None
            self.abort()
            if sink is not None:
                sink.response_failed(f"sent what is not HTTP ({error.message})", answered=True)

    def _start_body(self, head: ResponseHead, data: bytes, end: int) -> None:
        sink = self._sink
        if sink is None:
            self.abort()
            return
        used = len(data)
        complete = False
        if head.status == 101:
            self._phase = _Phase.TUNNEL
        elif head.framing is Framing.CLOSE:
            self._phase = _Phase.CLOSE
        elif head.framing is Framing.CHUNKED:
            self._phase = _Phase.CHUNKED
            self._chunks = ChunkedReader()
            used = end + self._chunks.feed(memoryview(data)[end:])[1]
            complete = self._chunks.done
        else:
            self._phase = _Phase.LENGTH
            used = min(end + head.content_length, len(data))
            self._left = head.content_length - (used - end)
            complete = not self._left
        self._keep_alive = head.keep_alive
        if complete:
            self._done()
            if used < len(data):
                self.closing = True
                data = data[:used]
        sink.response_started(head, data, end, complete=complete)

    def _read_length(self, view: memoryview) -> None:
        sink = self._sink
        if sink is None:
            self.abort()
            return
        size = len(view)
        if size < self._left:
            self._left -= size
            sink.response_data(view, complete=False)
            return
        if size > self._left:
            self.closing = True
        view = view[: self._left]
        self._done()
        sink.response_data(view, complete=True)

    def _read_chunks(self, view: memoryview) -> None:
        sink, chunks = self._sink, self._chunks
        if sink is None or chunks is None:
            self.abort()
            return
        try:
            _, used = chunks.feed(view)
        except HttpError as error:
            self._sink = None
            self.abort()
            sink.response_failed(f"sent a malformed body ({error.message})", answered=True)
            return
        if not chunks.done:
            sink.response_data(view, complete=False)
            return
        if used < len(view):
            self.closing = True
        self._done()
        sink.response_data(view[:used], complete=True)


async def _connected(path: Path) -> socket.socket:
    """A connected socket. A daemon whose backlog is full gets a few seconds to catch up."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    connected = False
    try:
        error = sock.connect_ex(os.fspath(path))
        for _ in range(_BACKLOG_RETRIES):
            if error not in (errno.EAGAIN, errno.EINTR):
                break
            await asyncio.sleep(_BACKLOG_WAIT_S)
            error = sock.connect_ex(os.fspath(path))
        connected = error == 0
    finally:
        if not connected:
            sock.close()
    if not connected:
        raise OSError(error, os.strerror(error))
    return sock
