"""From values to bytes: the heads that the gate writes, to the daemon and to the client.

Pure. A request to the daemon is always written anew, from the canonical target and an allow-list of
headers; the client's own lines are never passed on. An answer of the daemon loses its hop-by-hop fields.
Source: RFC 9110 section 7.6.1 (Connection); the Docker CLI's and SDKs' headers as captured.
"""

import json
from collections.abc import Iterable

from gate.http.message import Framing, Header, RequestHead, ResponseHead
from gate.http.parse import connection_options

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_FORWARDED = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"user-agent",
        b"x-registry-auth",
        b"x-registry-config",
        b"traceparent",
        b"tracestate",
        b"baggage",
    }
)
_FORWARDED_PREFIXES = (b"x-docker-expose-session-", b"x-meta-")
_WEBSOCKET = frozenset(
    {
        b"origin",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-protocol",
        b"sec-websocket-extensions",
    }
)
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_REASONS = {
    400: b"Bad Request",
    403: b"Forbidden",
    408: b"Request Timeout",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    426: b"Upgrade Required",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}


def forwarded_headers(head: RequestHead) -> tuple[Header, ...]:
    """The client's headers that the daemon may see: on the allow-list, and not named by `Connection`."""
    named = connection_options(head.headers)
    return tuple(
        (name, value)
        for name, value in head.headers
        if (name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES) or _for_websocket(name, head))
        and name not in named
    )


def encode_request_head(
    method: str,
    target: bytes,
    headers: Iterable[Header],
    *,
    content_length: int | None = None,
    chunked: bool = False,
    content_type: bytes | None = None,
    upgrade: bytes | None = None,
) -> bytes:
    """A request head to the daemon; `headers` are passed on as they are and hold no framing."""
    parts = [method.encode("ascii"), b" ", target, b" HTTP/1.1\r\nHost: docker\r\n"]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    if content_type is not None:
        parts += (b"Content-Type: ", content_type, b"\r\n")
    if chunked:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    elif content_length is not None:
        parts.append(b"Content-Length: %d\r\n" % content_length)
    if upgrade is not None:
        parts += (b"Connection: Upgrade\r\nUpgrade: ", upgrade, b"\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def encode_response_head(
    head: ResponseHead, *, close: bool, content_length: int | None = None, upgrade: bool = False
) -> bytes:
    """The daemon's head as the client gets it.

    Args:
        head: what the daemon sent.
        close: the connection ends after this answer; the client is told.
        content_length: the body's new length, where the gate changed it.
        upgrade: this is a 101, so that `Connection` and `Upgrade` belong to the client.
    """
    named = connection_options(head.headers) if not upgrade else frozenset()
    parts = [b"HTTP/1.1 %d " % head.status, head.reason, b"\r\n"]
    for name, value in head.headers:
        if name in _HOP_BY_HOP and not (upgrade and name in (b"connection", b"upgrade")):
            continue
        if name in named or (name == b"content-length" and content_length is not None):
            continue
        parts += (_titled(name), b": ", value, b"\r\n")
    if content_length is not None:
        parts.append(b"Content-Length: %d\r\n" % content_length)
    elif head.framing is Framing.CHUNKED:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    if close:
        parts.append(b"Connection: close\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def encode_message(
    status: int, message: str, *, method: str = "", close: bool, headers: Iterable[Header] = ()
) -> bytes:
    """An answer of the gate's own in Docker's form, `{"message": ...}`; HEAD gets the head alone."""
    body = json.dumps({"message": message}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    parts = [
        b"HTTP/1.1 %d " % status,
        _REASONS.get(status, b"Refused"),
        b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(body),
    ]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"Connection: close\r\n\r\n" if close else b"\r\n")
    if method != "HEAD":
        parts.append(body)
    return b"".join(parts)


def encode_chunk(piece: bytes | memoryview) -> tuple[bytes, bytes | memoryview, bytes]:
    """One chunk of at least one byte, as parts to be written together."""
    return b"%x\r\n" % len(piece), piece, b"\r\n"


def _for_websocket(name: bytes, head: RequestHead) -> bool:
    return name in _WEBSOCKET and head.upgrade == b"websocket"


def _titled(name: bytes) -> bytes:
    return b"-".join(part.capitalize() for part in name.split(b"-"))
