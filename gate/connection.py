"""One client connection: heads in order, one exchange at a time, then perhaps a tunnel.

Whatever goes wrong here closes this connection and its daemon connection, is logged once, and touches
nothing else.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from base.errors import UnreachableError
from gate.exchange import Exchange
from gate.http.encode import encode_message
from gate.http.message import HttpCode, HttpError
from gate.http.parse import find_head
from gate.limits import Limits
from gate.listener import peer_of
from gate.metrics import Outcome
from gate.plan import Refused
from gate.ports import Peer
from gate.repo import Repo
from gate.stream import Stop, Stream
from gate.upstream import ResponseSink, Upstream

_log = logging.getLogger(__name__)
_MOST_TURNED_AWAY = 64
"""Most connections beyond the limit that get the time to read why."""


class ClientConnection(Stream):
    """A client's connection to one repo's socket."""

    __slots__ = (
        "_busy",
        "_inbox",
        "_lingering",
        "_looked_at",
        "_peer",
        "_tunnel",
        "_upstream",
        "exchange",
        "repo",
    )

    def __init__(self, repo: Repo) -> None:
        super().__init__(repo.service.pool)
        self.repo = repo
        self.exchange: Exchange | None = None
        self._upstream: Upstream | None = None
        self._inbox = b""
        self._looked_at = 0
        self._busy = False
        self._lingering = False
        self._tunnel = False
        self._peer: Peer | None = None

    @property
    def limits(self) -> Limits:
        """The bounds that hold here."""
        return self.repo.service.limits

    @property
    def peer(self) -> Peer:
        """Who connected."""
        if self._peer is None:
            sock = self.transport.get_extra_info("socket") if self.transport is not None else None
            self._peer = peer_of(sock)
        return self._peer

    @property
    def idle(self) -> bool:
        """Whether this is between two requests."""
        return self.exchange is None and not self._tunnel

    @property
    def has_more(self) -> bool:
        """Whether bytes after the current request wait."""
        return bool(self._inbox)

    # Stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it, or turn it away."""
        super().connection_made(transport)
        metrics = self.repo.metrics
        self.repo.connections.add(self)
        metrics.connections += 1
        metrics.connections_total += 1
        if metrics.connections > self.limits.connections:
            metrics.connections_refused += 1
            text = (
                f"repo {self.repo.endpoint.name} has {self.limits.connections} open connections [gate-busy]: "
            )
            self.send(encode_message(503, text + "close some, or ask the operator for more", close=True))
            if metrics.connections > self.limits.connections + _MOST_TURNED_AWAY:
                self.close()  # each that lingers is a file descriptor, which all repos share
            else:
                self._linger()

    def received(self, view: memoryview) -> None:
        """Bytes of a request, of a tunnel, or of what is dropped before closing."""
        self.repo.metrics.bytes_from_clients += len(view)
        if self._tunnel:
            if self.partner is not None:
                self.partner.relay(view)
            return
        if self._lingering:
            return
        exchange = self.exchange
        if exchange is None:
            self._inbox = self._inbox + bytes(view) if self._inbox else bytes(view)
            self._advance()
            return
        if not self._inbox and exchange.wants_body:
            used = self._feed(exchange, view)
            if used == len(view):
                return
            view = view[used:]
        self._inbox += bytes(view)
        if self.exchange is None:
            self._advance()
        elif len(self._inbox) > self.limits.pipelined_bytes:
            self.stop_reading(Stop.HOLD)
            self.repo.service.watch_hang_up(self)

    def ended(self) -> bool:
        """The client sends no more; it may still read."""
        exchange = self.exchange
        if self._tunnel:
            return self._tunnel_ended()
        if exchange is None or self._lingering or exchange.response_done:
            return False
        if self.hung_up():
            self.abort()
            return False
        if exchange.wants_body:
            exchange.malformed(_truncated())
            return not self.closing
        self.repo.service.watch_hang_up(self)
        if not self._inbox:
            exchange.half_close()
        return True

    def lost(self, error: Exception | None) -> None:  # noqa: ARG002 - a client that is gone needs no reason
        """The client is gone: so is what was asked for it."""
        self.closing = True
        self.repo.connections.discard(self)
        self.repo.metrics.connections -= 1
        self.repo.service.forget(self)
        exchange, self.exchange = self.exchange, None
        upstream, self._upstream = self._upstream, None
        if exchange is not None:
            exchange.cancel()
        if upstream is None:
            return
        if self._tunnel:
            self.repo.metrics.tunnels -= 1
            upstream.close()
            self.repo.service.abort_later(upstream)
        else:
            upstream.abort()

    def partner_gone(self) -> None:
        """The daemon has closed a tunnel: the client reads the last bytes; what it still sends is dropped."""
        if self._tunnel:
            self._tunnel = False
            self.repo.metrics.tunnels -= 1
            self._linger()

    def crashed(self, error: Exception) -> None:
        """Log, and close this pair."""
        self.repo.metrics.failures += 1
        _log.error("gate.connection_failed repo=%s", self.repo.endpoint.guid, exc_info=error)
        if self._upstream is not None:
            self._upstream.abort()
        self.abort()

    # Requests

    def _advance(self) -> None:
        """Take requests from the inbox until one waits for something."""
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox and self.exchange is None and not self.closing and not self._lingering:
                if not self._next_request():
                    break
        finally:
            self._busy = False
        if self.eof_received_ and self.exchange is None and not self._tunnel:
            self.close()

    def _next_request(self) -> bool:
        """Begin the request at the start of the inbox; False while its head is not complete."""
        data = self._inbox
        try:
            end = find_head(data, self._looked_at)
            if not end:
                if not self._looked_at:
                    self.watch(self.limits.head_s)
                self._looked_at = len(data)
                return False
            if self._looked_at:
                self._looked_at = 0
                self.unwatch()
            plan = self.repo.service.plans.plan(data[:end] if end < len(data) else data)
            self._inbox = data[end:]
            if isinstance(plan, Refused):
                self._refuse(plan)
            else:
                self.exchange = Exchange(self, plan.head, plan, plan.name)
                self.exchange.start(plan)
        except HttpError as error:
            self._malformed(error)
            return False
        self._feed_inbox()
        return True

    def _refuse(self, refusal: Refused) -> None:
        denial = refusal.denial
        self.exchange = Exchange(self, refusal.head, None, "-")
        self.repo.gatekeeper.refused(refusal.head, denial, peer=self.peer)
        self.exchange.refuse(denial.status, denial.message(), Outcome.DENIED)

    def _feed(self, exchange: Exchange, view: memoryview) -> int:
        try:
            return exchange.feed(view)
        except HttpError as error:
            self.repo.gatekeeper.unreadable(error, peer=self.peer)
            exchange.malformed(error)
            return len(view)

    def _feed_inbox(self) -> None:
        exchange = self.exchange
        if exchange is not None and self._inbox and exchange.wants_body:
            data, self._inbox = self._inbox, b""
            used = self._feed(exchange, memoryview(data))
            self._inbox = data[used:] + self._inbox

    def _malformed(self, error: HttpError) -> None:
        """Answer bytes that are no request, and end: nothing after them can be understood."""
        exchange = self.exchange
        self.repo.gatekeeper.unreadable(error, peer=self.peer)
        if exchange is not None:
            exchange.malformed(error)
            return
        self.repo.metrics.requests["-", Outcome.MALFORMED] += 1
        self.send(encode_message(error.status, error.text(), close=True))
        self._linger()

    def body_wanted(self) -> None:
        """The exchange can use more of the request now."""
        self._feed_inbox()
        exchange = self.exchange
        if self.eof_received_ and exchange is not None and exchange.wants_body:
            exchange.malformed(_truncated())
            return
        if len(self._inbox) <= self.limits.pipelined_bytes:
            self.start_reading(Stop.HOLD)

    def exchange_finished(self, *, keep: bool) -> None:
        """The request is read and answered: the next one, or the end."""
        exchange, self.exchange = self.exchange, None
        self.unwatch()
        if exchange is None or self.closing:
            return
        if not keep:
            if exchange.request_done and not self._inbox:
                self.close()
            else:
                self._linger()
            return
        self.start_reading(Stop.HOLD)
        if self._inbox or self.eof_received_:
            self._advance()

    def _linger(self) -> None:
        """Close when the client has read the answer: unread bytes of its own would make it lose that."""
        self._lingering = True
        self._inbox = b""
        self.exchange = None
        self.drop_upstream()
        self.finish_sending()
        self.start_reading(Stop.HOLD)
        if self.eof_received_:
            self.close()
        else:
            self.watch(self.limits.linger_s)

    # The daemon

    def upstream_for(self, sink: ResponseSink, method: str, wire: bytes, *, replay: bool) -> Upstream:
        """Send a request on this client's own daemon connection, or on a new one.

        A request that must not be sent twice goes to an idle connection only when that is open right now.
        """
        upstream = self._upstream
        if upstream is not None and not (upstream.usable and (replay or upstream.alive())):
            self.drop_upstream()
            upstream = None
        if upstream is None:
            service = self.repo.service
            upstream = Upstream(self.repo.endpoint.upstream, service.pool, service.heads, self.repo.metrics)
            self._upstream = upstream
            self.pair(upstream)
            self.spawn(self._connect(upstream, sink))
        upstream.begin(sink, method, wire)
        return upstream

    async def _connect(self, upstream: Upstream, sink: ResponseSink) -> None:
        try:
            await upstream.connect()
        except UnreachableError as error:
            reason = f"cannot be reached: {error.message}"
            upstream.closing = True
            if self._upstream is upstream:
                self.guard(lambda: sink.response_failed(reason, answered=False))

    def release_upstream(self, *, reuse: bool) -> None:
        """The answer is complete: keep the daemon connection for the next request where that is safe."""
        if self._upstream is not None and not (reuse and self._upstream.usable):
            self.drop_upstream()

    def drop_upstream(self) -> None:
        """Close the daemon connection."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            self.unpair()
            upstream.abort()
            self.start_reading(Stop.HOLD)

    def open_tunnel(self, upstream: Upstream, first: bytes) -> None:
        """From now on bytes pass both ways; what the client sent early follows the daemon's answer."""
        self.exchange = None
        self._tunnel = True
        self.repo.metrics.tunnels += 1
        upstream.tunnel()
        self.send(first)
        self.start_reading(Stop.HOLD)
        early, self._inbox = self._inbox, b""
        if early:
            upstream.relay(early)
        if self.eof_received_:
            self._tunnel_ended()

    def _tunnel_ended(self) -> bool:
        upstream = self._upstream
        if upstream is None or upstream.eof_received_ or self.hung_up():
            return False
        upstream.finish_sending()
        self.repo.service.watch_hang_up(self)
        return True

    def break_off(self) -> None:
        """End without an end: the client sees that the answer is cut short, as the gate did."""
        self.drop_upstream()
        self.abort()

    # Helpers

    def watch(self, seconds: float) -> None:
        """`expired` is called after this time, unless `unwatch` is."""
        self.repo.service.watch(self, seconds)

    def unwatch(self) -> None:
        """The time limit is off."""
        self.repo.service.unwatch(self)

    def expired(self) -> None:
        """A time limit passed."""
        exchange = self.exchange
        if self._lingering or (exchange is not None and exchange.response_done):
            if self.write_paused:
                self.watch(self.limits.linger_s)  # it is still reading
            else:
                self.abort()
        else:
            hint = "send the whole request, or close the connection"
            error = HttpError(HttpCode.TIMEOUT, "the request did not arrive in time", status=408, hint=hint)
            self.guard(lambda: self._malformed(error))

    def guard(self, step: Callable[[], None]) -> None:
        """Run a step that no event of the socket started; its errors close this pair and nothing else."""
        if self.closing:
            return
        try:
            step()
        except Exception as error:  # noqa: BLE001 - one connection's trouble must stay with it
            self.crashed(error)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` as long as this connection lives."""
        self.repo.service.tasks.spawn(work, owner=self)


def _truncated() -> HttpError:
    hint = "send as many bytes as Content-Length says, or the last chunk"
    return HttpError(HttpCode.TRUNCATED, "the request body ends early", hint=hint)
