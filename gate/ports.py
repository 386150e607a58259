"""What the transport asks of the rest of the gate, and what it tells it.

The transport moves bytes and keeps the wire unambiguous; whoever implements `Gatekeeper` decides. A route
that is refused outright never gets here: `gate.core.routes.match` answers with a `Denial` itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gate.core.denial import Denial
from gate.core.policy import Forward
from gate.core.routes import Matched
from gate.http.message import HttpError, RequestHead

Match = Callable[[str, bytes], Matched | Denial]
"""`gate.core.routes.match`: a pure function of method and target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who opened the client connection, as the kernel saw it then (`SO_PEERCRED`); -1 where unknown."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoEndpoint:
    """One repo's socket and the daemon behind it; two that differ in their name alone are equal.

    Args:
        guid: the repo's GUID.
        name: its current name, for messages and logs.
        socket: the path that clients connect to.
        socket_mode: permission bits of that socket.
        gid: its group, or None to leave the gate's own.
        upstream: the daemon's unix socket.
    """

    guid: str
    name: str = field(compare=False)
    socket: Path
    socket_mode: int = 0o660
    gid: int | None = None
    upstream: Path


class Gatekeeper(Protocol):
    """Decides for one repo. Called on the event loop; an exception refuses the request (fail closed)."""

    @property
    def api_version(self) -> str | None:
        """The API version that requests without one are given; None leaves them the daemon's own."""
        ...

    def inspects(self, matched: Matched) -> bool:
        """Whether `inspect` must be asked before the daemon hears of this request.

        Cheap. Where it is False the canonical request passes with its body as the client sent it (re-framed).
        """
        ...

    async def inspect(
        self, matched: Matched, head: RequestHead, body: bytes, *, peer: Peer
    ) -> Forward | Denial:
        """What to do with the request.

        `body` is whole for JSON routes, and empty for routes without a body and for streamed ones (tar), of
        which the daemon gets nothing before this returns. Cancelled when the client is gone.
        """
        ...

    def refused(self, head: RequestHead, denial: Denial, *, peer: Peer) -> None:
        """Told of every denial that did not come from `inspect`, for the audit log. Must not block."""
        ...

    def unreadable(self, error: HttpError, *, peer: Peer) -> None:
        """Told of bytes that were refused because they are no request. Must not block."""
        ...
