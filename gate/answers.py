"""The changes that the gate makes to an answer: its warnings are added, and no API is offered that it lacks.

Pure. Source: Docker's API: create, and what answers like it, has `"Warnings": [...]`, which the CLI prints;
clients negotiate by `GET /_ping` or `GET /version` (`gate.core.versions`).
"""

import json
from collections.abc import Callable

from gate.core.versions import capped_version
from gate.http.body import reader_for
from gate.http.encode import encode_response_head
from gate.http.message import Framing, ResponseHead
from gate.http.parse import media_type

PING_ROUTES = frozenset({"system.ping", "system.ping_head", "system.version"})
"""The routes whose answers tell the daemon's newest API version."""


class HeldAnswer:
    """An answer that is kept back until it is whole, because its body changes.

    Args:
        head: the daemon's; its body is JSON (`rewritable`).
        limit: most bytes that are kept; a longer answer goes out as it came.
        change: from the daemon's body to the client's.
    """

    __slots__ = ("_change", "_head", "_limit", "_raw")

    def __init__(self, head: ResponseHead, limit: int, change: Callable[[bytes], bytes]) -> None:
        self._head: ResponseHead | None = head
        self._limit = limit
        self._change = change
        self._raw = bytearray()

    def feed(self, data: memoryview | bytes, *, complete: bool, close: bool) -> memoryview | bytes:
        """What the client gets now, head included, for more bytes of the body with their framing."""
        head = self._head
        if head is None:
            return data
        self._raw += data
        if len(self._raw) > self._limit:
            self._head = None
            return encode_response_head(head, close=close) + bytes(self._raw)
        if not complete:
            return b""
        body = bytes(self._raw)
        if head.framing is Framing.CHUNKED:
            pieces, _ = reader_for(None, chunked=True).feed(body)
            body = b"".join(pieces)
        body = self._change(body)
        return encode_response_head(head, close=close, content_length=len(body)) + body


def change_of(route: str, warnings: tuple[str, ...]) -> Callable[[bytes], bytes] | None:
    """How the body of this route's answer changes, if it does."""
    if warnings:
        return lambda body: merge_warnings(body, warnings)
    return capped_version if route == "system.version" else None


def rewritable(head: ResponseHead, limit: int) -> bool:
    """Whether this answer is a success in JSON of at most `limit` bytes, as far as known, uncompressed."""
    return (
        200 <= head.status < 300
        and head.framing in (Framing.LENGTH, Framing.CHUNKED)
        and head.content_length <= limit
        and media_type(head.header(b"content-type") or b"") == b"application/json"
        and head.header(b"content-encoding") is None
    )


def merge_warnings(body: bytes, warnings: tuple[str, ...]) -> bytes:
    """The JSON object `body` with `warnings` at the end of its `Warnings`; anything else stays as it is."""
    try:
        answer: object = json.loads(body)
    except ValueError:
        return body
    if not isinstance(answer, dict):
        return body
    present = answer.get("Warnings")
    own = present if isinstance(present, list) else []
    return json.dumps({**answer, "Warnings": [*own, *warnings]}, ensure_ascii=False).encode() + b"\n"
