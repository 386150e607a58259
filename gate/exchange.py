"""One request and its answer: what is read from the client, what is asked, what goes back.

An exchange is finished when the client's whole request was read and the whole answer was written. The two
ends move independently: an answer may be complete while an upload is still coming (the rest is then read and
dropped, so that the client gets to read it), and a request whose body is whole may be decided for a while.
"""

import logging
from typing import TYPE_CHECKING

from base.errors import RdcError
from gate.answers import PING_ROUTES, HeldAnswer, change_of, rewritable
from gate.core.denial import Denial
from gate.core.policy import Forward
from gate.core.tar_scan import TarScan
from gate.core.versions import capped_head, with_version
from gate.held import HeldBody
from gate.http.body import BodyReader, reader_for
from gate.http.encode import (
    CONTINUE,
    LAST_CHUNK,
    encode_chunk,
    encode_message,
    encode_request_head,
    encode_response_head,
)
from gate.http.message import Framing, HttpCode, HttpError, RequestHead, ResponseHead
from gate.http.parse import media_type
from gate.metrics import Outcome
from gate.plan import BodyUse, Plan, request_length
from gate.stream import Stop
from gate.upstream import Upstream

if TYPE_CHECKING:
    from gate.connection import ClientConnection

_log = logging.getLogger(__name__)
_RAW_STREAMS = frozenset({b"application/vnd.docker.raw-stream", b"application/vnd.docker.multiplexed-stream"})


class Exchange:
    """One request on a client connection. Made when its head is complete."""

    __slots__ = (
        "_answer", "_body_bytes", "_connection", "_continue_due", "_deciding", "_head", "_held", "_name",
        "_plan", "_reader", "_rechunk", "_replay", "_scan", "_upstream", "_use", "_warnings", "keep_alive",
        "response_done", "response_started_",
    )  # fmt: skip

    def __init__(
        self, connection: "ClientConnection", head: RequestHead, plan: Plan | None, name: str
    ) -> None:
        self._connection = connection
        self._head = head
        self._plan = plan
        self._name = name
        self._reader: BodyReader = reader_for(head.content_length, chunked=head.chunked)
        self._rechunk = head.chunked
        self._use = BodyUse.DROP if plan is None else plan.body_use
        self._continue_due = head.expect_continue and not self._reader.done
        self._body_bytes = 0
        self._held = HeldBody(connection.repo)
        self._deciding = False
        self._upstream: Upstream | None = None
        self._scan: TarScan | None = None
        self._replay: bytes | None = None
        self._warnings: tuple[str, ...] = ()
        self._answer: HeldAnswer | None = None
        self.keep_alive = head.keep_alive
        self.response_done = False
        self.response_started_ = False

    # The request

    @property
    def request_done(self) -> bool:
        """Whether the client's whole request was read."""
        return self._reader.done

    @property
    def wants_body(self) -> bool:
        """Whether bytes of the body can be used now."""
        return not self._reader.done and not (
            self._deciding and self._use is BodyUse.STREAM and not self.response_done
        )

    def start(self, plan: Plan) -> None:
        """Begin: forward at once what nobody inspects, else decide when there is enough to decide on."""
        if not self._connection.repo.gatekeeper.inspects(plan.matched):
            self._invite_body()
            self._use = BodyUse.STREAM if plan.body_use is BodyUse.WHOLE else plan.body_use
            self._ask(plan.wire, replay=plan.replayable)
            return
        if plan.body_use is not BodyUse.STREAM:
            if (plan.head.content_length or 0) > self._limit():
                raise self._too_large()
            self._invite_body()
        if self._reader.done or plan.body_use is not BodyUse.WHOLE:
            self._decide(plan)
        elif not self._reader.done:
            self._connection.watch(self._connection.limits.body_s)

    def feed(self, view: memoryview) -> int:
        """Use the request's next bytes; returns how many were its own.

        Raises:
            HttpError: they are malformed; nothing after them can be understood.
        """
        pieces, used = self._reader.feed(view)
        if self._use is BodyUse.STREAM:
            if not self._stream(pieces):
                return used
        elif not self.response_done:
            self._body_bytes += sum(map(len, pieces))
            error = self._too_large() if self._body_bytes > self._limit() else None
            if error is None and self._use is BodyUse.WHOLE and not self._held.add(pieces):
                error = _no_room()
            if error is not None:
                self.refuse(error.status, error.text(), Outcome.MALFORMED)
                return used
        if self._reader.done:
            self._request_done()
        return used

    def malformed(self, error: HttpError) -> None:
        """The request cannot be read further: say so where that is still possible, and end."""
        self.keep_alive = False
        if self.response_done:
            self._connection.exchange_finished(keep=False)
        else:
            self.refuse(error.status, error.text(), Outcome.MALFORMED)

    def cancel(self) -> None:
        """The client is gone: nothing of this reaches the daemon any more."""
        self._held.drop()
        if self._upstream is not None:
            self._upstream.abort()
        if not self.response_done:
            self.response_done = True
            self._connection.repo.metrics.requests[self._name, Outcome.GONE] += 1

    def half_close(self) -> None:
        """The client sends no more: the daemon is told once it has begun to answer."""
        if self.response_started_ and self._upstream is not None and not self.response_done:
            self._upstream.finish_sending()

    def _request_done(self) -> None:
        plan = self._plan
        if self._scan is not None and self._denied(self._scan.finish()):
            return
        if self._use is BodyUse.STREAM and self._rechunk and self._upstream is not None:
            self._upstream.send(LAST_CHUNK)
        if self._use is BodyUse.WHOLE and plan is not None and not self.response_done and not self._deciding:
            self._connection.unwatch()
            self._decide(plan)
        if self.response_done:
            self._connection.exchange_finished(keep=self.keep_alive)

    def _stream(self, pieces: list[bytes | memoryview]) -> bool:
        """Pass pieces on; False when they were refused."""
        upstream = self._upstream
        if upstream is None or not pieces:
            return True
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._scan is not None and self._denied(self._scan.feed(piece)):
            return False
        upstream.relay(*(encode_chunk(piece) if self._rechunk else (piece,)))
        return True

    def _denied(self, denial: Denial | None) -> bool:
        """Refuse for what the body holds; what the daemon has of it until now ends in the middle."""
        if denial is None or self.response_done:
            return False
        self._connection.repo.gatekeeper.refused(self._head, denial, peer=self._connection.peer)
        self.refuse(denial.status, denial.message(), Outcome.DENIED)
        return True

    def _limit(self) -> int:
        limits = self._connection.limits
        return limits.inspected_body_bytes if self._use is BodyUse.WHOLE else limits.dropped_body_bytes

    def _too_large(self) -> HttpError:
        hint = "leave the body out; this endpoint takes none"
        if self._use is BodyUse.WHOLE:
            hint = "shorten the request; whatever cannot be looked at whole is refused"
        text = f"the request body is larger than {self._limit()} bytes"
        return HttpError(HttpCode.BODY_TOO_LARGE, text, status=413, hint=hint)

    def _invite_body(self) -> None:
        if self._continue_due:
            self._continue_due = False
            self._connection.send(CONTINUE)

    # The decision

    def _decide(self, plan: Plan) -> None:
        self._deciding = True
        self._connection.spawn(self._inspect(plan))

    async def _inspect(self, plan: Plan) -> None:
        connection = self._connection
        gatekeeper = connection.repo.gatekeeper
        body = bytes(self._held)
        verdict: Forward | Denial | Exception
        try:
            verdict = await gatekeeper.inspect(plan.matched, plan.head, body, peer=connection.peer)
        except Exception as error:  # noqa: BLE001 - whatever it is, an undecided request is refused
            verdict = error
        self._deciding = False
        self._held.drop()
        connection.guard(lambda: self._act(plan, verdict))

    def _act(self, plan: Plan, verdict: Forward | Denial | Exception) -> None:
        match verdict:
            case Forward():
                self._forward(plan, verdict)
            case Denial():
                self.refuse(verdict.status, verdict.message(), Outcome.DENIED)
            case RdcError():
                outcome = Outcome.MALFORMED if verdict.http_status == 400 else Outcome.FAILED
                text = f"{verdict.message} [{verdict.code}]" + (f": {verdict.hint}" if verdict.hint else "")
                self.refuse(verdict.http_status, text, outcome)
            case _:
                guid = self._connection.repo.endpoint.guid
                _log.error("gate.inspect_failed repo=%s route=%s", guid, self._name, exc_info=verdict)
                text = "the gate could not decide on this request, so it is refused [gate-error]"
                self.refuse(500, f"{text}: ask the operator to look at the gate's log", Outcome.FAILED)

    def _forward(self, plan: Plan, forward: Forward) -> None:
        if self._connection.closing or self.response_done:
            return
        self._warnings = forward.response_warnings
        self._scan = TarScan() if forward.archive else None
        head = plan.head
        streams = plan.body_use is BodyUse.STREAM and forward.body is None
        if streams:
            self._invite_body()
            length = request_length(head, BodyUse.STREAM)
        else:
            self._use = BodyUse.DROP if not self._reader.done else self._use
            length = len(forward.body) if forward.body is not None else request_length(head, BodyUse.DROP)
        wire = encode_request_head(
            head.method,
            forward.target,
            plan.headers,
            content_length=length,
            chunked=streams and head.chunked,
            content_type=forward.content_type if length or (streams and head.has_body) else None,
            upgrade=plan.upgrade,
        )
        self._ask(wire + (forward.body or b""), replay=False)
        self._connection.body_wanted()

    def _ask(self, wire: bytes, *, replay: bool) -> None:
        version = self._connection.repo.gatekeeper.api_version
        if version is not None:
            wire = with_version(wire, version)
        self._replay = wire if replay else None
        self._upstream = self._connection.upstream_for(self, self._head.method, wire, replay=replay)

    # The answer (ResponseSink)

    def response_started(self, head: ResponseHead, data: bytes, end: int, *, complete: bool) -> None:
        """Pass the head on, and open the tunnel where this is one."""
        self.response_started_ = True
        self._replay = None
        if head.status == 101 or self._becomes_raw(head):
            self._switch(head, data, end)
            return
        connection = self._connection
        if self._name in PING_ROUTES:
            head = capped_head(head)
        change, limit = change_of(self._name, self._warnings), connection.limits.rewritten_answer_bytes
        if change is not None and rewritable(head, limit):
            self._answer = HeldAnswer(head, limit, change)
            self.response_data(data[end:], complete=complete)
            return
        if head.framing is Framing.CLOSE or connection.repo.draining:
            self.keep_alive = False
        if head.verbatim and self.keep_alive:
            connection.relay(data)
        else:
            connection.relay(encode_response_head(head, close=not self.keep_alive) + data[end:])
        if complete:
            self._response_done(Outcome.ANSWERED)
        elif connection.eof_received_ and not connection.has_more:
            self.half_close()

    def response_data(self, data: memoryview | bytes, *, complete: bool) -> None:
        """Pass more of the body on."""
        if self._answer is not None:
            data = self._answer.feed(data, complete=complete, close=not self.keep_alive)
        if data:
            self._connection.relay(data)
        if complete:
            self._response_done(Outcome.ANSWERED)

    def response_failed(self, reason: str, *, answered: bool) -> None:
        """Ask once more where that is safe; else say what happened, or break off like the daemon did."""
        connection = self._connection
        upstream = self._upstream
        if connection.closing or self.response_done:
            return
        if not answered and self._replay is not None and upstream is not None and upstream.reused:
            connection.repo.metrics.upstream_retries += 1
            connection.drop_upstream()
            self._ask(self._replay, replay=False)
            return
        if self.response_started_:
            connection.repo.metrics.requests[self._name, Outcome.UNREACHABLE] += 1
            self.response_done = True
            connection.break_off()
            return
        endpoint = connection.repo.endpoint
        _log.warning("gate.daemon_unreachable repo=%s reason=%s", endpoint.guid, reason)
        self.refuse(
            502,
            f"the Docker daemon of repo {endpoint.name} at {endpoint.upstream} {reason} [daemon-unreachable]"
            f": ask the operator to check that it runs; 'rdc repo show {endpoint.name}' names its socket",
            Outcome.UNREACHABLE,
        )

    def _becomes_raw(self, head: ResponseHead) -> bool:
        """The daemon's way of hijacking without an upgrade: 200, a raw stream, no length."""
        return (
            head.status == 200
            and head.framing is Framing.CLOSE
            and self._plan is not None
            and self._plan.hijacks
            and media_type(head.header(b"content-type") or b"") in _RAW_STREAMS
        )

    def _switch(self, head: ResponseHead, data: bytes, end: int) -> None:
        upstream = self._upstream
        unasked = head.status == 101 and (self._plan is None or self._plan.upgrade is None)
        if upstream is None or unasked or not self._reader.done:
            if upstream is not None:
                upstream.abort()
            self.response_started_ = False
            self.response_failed("switched protocols unasked", answered=True)
            return
        self.response_done = True
        start = encode_response_head(head, close=False, upgrade=True)
        self._connection.repo.metrics.requests[self._name, Outcome.TUNNEL] += 1
        self._connection.open_tunnel(upstream, start + data[end:])

    def _response_done(self, outcome: Outcome) -> None:
        self.response_done = True
        self._connection.repo.metrics.requests[self._name, outcome] += 1
        self._connection.release_upstream(reuse=self._reader.done)
        self._upstream = None
        if self._reader.done:
            self._connection.exchange_finished(keep=self.keep_alive)
        else:
            self._drop_rest()

    def refuse(self, status: int, text: str, outcome: Outcome) -> None:
        """Answer in the gate's own words, unless the daemon's have begun; then break off."""
        connection = self._connection
        if connection.closing or self.response_done:
            return
        self._held.drop()
        if self._upstream is not None:
            connection.drop_upstream()
            self._upstream = None
        self.response_done = True
        connection.repo.metrics.requests[self._name, outcome] += 1
        if self.response_started_:
            connection.break_off()
            return
        if self._continue_due or connection.repo.draining:
            self.keep_alive = False
        connection.send(encode_message(status, text, method=self._head.method, close=not self.keep_alive))
        if self._reader.done or not self.keep_alive:
            connection.exchange_finished(keep=self.keep_alive)
        else:
            self._drop_rest()

    def _drop_rest(self) -> None:
        """Read on and drop, for a while: a client that is cut off while sending never sees the answer."""
        self._use = BodyUse.DROP
        self._connection.start_reading(Stop.HOLD)
        self._connection.watch(self._connection.limits.linger_s)
        self._connection.body_wanted()


def _no_room() -> HttpError:
    hint = "wait until the other requests of this repo are answered"
    return HttpError(HttpCode.BUSY, "too many large requests at once", status=503, hint=hint)
