"""From a request head to what the transport will do with it, worked out once per distinct head.

Pure, so that it may be remembered: clients of a keep-alive connection send the same few heads again and
again, and the whole way from bytes to the daemon's request head is then one dictionary look-up.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from gate.core.denial import Denial
from gate.core.routes import Body, Kind, Matched
from gate.http.content import json_content_type
from gate.http.encode import encode_request_head, forwarded_headers
from gate.http.message import Header, HttpCode, HttpError, RequestHead
from gate.http.parse import parse_request_head
from gate.ports import Match

_CACHED_HEADS = 1024
_CACHED_HEAD_BYTES = 2048
_SECRET = frozenset({b"x-registry-auth", b"x-registry-config"})
_WITHOUT_LENGTH = frozenset({"GET", "HEAD", "DELETE"})
_UPGRADES = {Kind.HIJACK: b"tcp", Kind.WEBSOCKET: b"websocket", Kind.H2C: b"h2c"}


class BodyUse(StrEnum):
    """What becomes of the client's body."""

    DROP = "drop"  # none belongs here; read and dropped
    WHOLE = "whole"  # JSON; whole before it is decided, when it is decided on
    STREAM = "stream"  # opaque; re-framed as it comes


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An admissible request: its route, and how it would reach the daemon as it stands.

    `wire` is the head for the daemon of a request that nobody inspects. `upgrade` is the one protocol that
    the route may switch to, when the client asks for it.
    """

    head: RequestHead
    matched: Matched
    body_use: BodyUse
    content_type: bytes | None
    headers: tuple[Header, ...]
    upgrade: bytes | None
    wire: bytes

    @property
    def name(self) -> str:
        """The route's name, for metrics."""
        return self.matched.route.name

    @property
    def hijacks(self) -> bool:
        """Whether the daemon may turn a plain 200 into a two-way stream."""
        return self.matched.route.kind is Kind.HIJACK

    @property
    def replayable(self) -> bool:
        """Whether the daemon may be asked twice: only reads, and only without a body."""
        return self.head.method in ("GET", "HEAD") and self.upgrade is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A request that is answered by the gate alone."""

    head: RequestHead
    denial: Denial


def plan_request(raw: bytes, match: Match) -> Plan | Refused:
    """What the request whose head `raw` is will have done to it.

    Raises:
        HttpError: the head is malformed, or asks for what its route cannot do.
    """
    head = parse_request_head(raw)
    matched = match(head.method, head.target)
    if isinstance(matched, Denial):
        return Refused(head=head, denial=matched)
    route = matched.route
    use = _body_use(route.body)
    content_type = json_content_type(head) if use is BodyUse.WHOLE else route.content_type
    if use is BodyUse.STREAM and not head.has_body:
        content_type = None
    upgrade = _upgrade(head, route.kind)
    headers = forwarded_headers(head)
    return Plan(
        head=head,
        matched=matched,
        body_use=use,
        content_type=content_type,
        headers=headers,
        upgrade=upgrade,
        wire=encode_request_head(
            head.method,
            matched.target,
            headers,
            content_length=request_length(head, use),
            chunked=head.chunked and use is not BodyUse.DROP,
            content_type=content_type,
            upgrade=upgrade,
        ),
    )


def request_length(head: RequestHead, use: BodyUse) -> int | None:
    """The `Content-Length` for the daemon of a body that is passed on as it comes; None leaves it out."""
    if use is not BodyUse.DROP and head.content_length:
        return head.content_length
    return None if head.method in _WITHOUT_LENGTH or (head.chunked and use is not BodyUse.DROP) else 0


class PlanCache:
    """Plans by the exact bytes of their heads; bounded, and without heads that hold credentials."""

    __slots__ = ("_match", "_plans")

    def __init__(self, match: Match) -> None:
        self._match = match
        self._plans: dict[bytes, Plan | Refused] = {}

    def plan(self, raw: bytes) -> Plan | Refused:
        """As `plan_request`."""
        known = self._plans.get(raw)
        if known is not None:
            return known
        made = plan_request(raw, self._match)
        if len(raw) <= _CACHED_HEAD_BYTES and not any(name in _SECRET for name, _ in made.head.headers):
            if len(self._plans) >= _CACHED_HEADS:
                self._plans.clear()
            self._plans[raw] = made
        return made


def _body_use(body: Body) -> BodyUse:
    match body:
        case Body.NONE:
            return BodyUse.DROP
        case Body.JSON | Body.JSON_OPTIONAL:
            return BodyUse.WHOLE
        case Body.TAR | Body.ANY:
            return BodyUse.STREAM
        case _:
            assert_never(body)


def _upgrade(head: RequestHead, kind: Kind) -> bytes | None:
    """The protocol to switch to. Another one than the route's is no upgrade (RFC 9110, 7.8).

    Raises:
        HttpError: the route does nothing without its upgrade, and the client did not ask for it.
    """
    wanted = _UPGRADES.get(kind)
    if wanted is None:
        return None
    if head.upgrade == wanted:
        return wanted
    if kind is Kind.HIJACK:
        return None
    raise HttpError(
        HttpCode.UPGRADE,
        f"{head.method} {head.target[:80].decode('ascii')} needs an upgrade",
        status=426,
        hint=f"send 'Connection: Upgrade' and 'Upgrade: {wanted.decode('ascii')}'",
    )
