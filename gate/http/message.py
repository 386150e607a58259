"""HTTP/1.1 heads as values, their limits, and the one error of this package.

Pure. Source: RFC 9112 (message syntax) and RFC 9110 (semantics), narrowed to what a Docker socket needs.
"""

from dataclasses import dataclass
from enum import StrEnum

from base.errors import MalformedError

MAX_HEAD_BYTES = 64 * 1024
"""Longest head, first byte to the empty line. Docker credentials and long filters pass 8 KiB, so not less."""

MAX_HEADERS = 128
"""Most header lines of one head; Go's clients send fewer than twenty."""

MAX_BODY_BYTES = 2**63 - 1
"""Largest length that a daemon written in Go can hold."""

Header = tuple[bytes, bytes]
"""A lower-case name and its value without surrounding blanks."""


class HttpCode(StrEnum):
    """Why a message was refused; stable, for tests, logs and metrics."""

    REQUEST_LINE = "http-request-line"
    TARGET = "http-target"
    VERSION = "http-version"
    LINE_END = "http-line-end"
    HEADER = "http-header"
    HEAD_TOO_LARGE = "http-head-too-large"
    HOST = "http-host"
    CONTENT_LENGTH = "http-content-length"
    TRANSFER_ENCODING = "http-transfer-encoding"
    CHUNK = "http-chunk"
    EXPECT = "http-expect"
    UPGRADE = "http-upgrade"
    BODY_TOO_LARGE = "http-body-too-large"
    CONTENT_TYPE = "http-content-type"
    TIMEOUT = "http-timeout"
    TRUNCATED = "http-truncated"
    BUSY = "gate-busy"
    STATUS_LINE = "http-status-line"


class HttpError(MalformedError):
    """Bytes that this gate does not take for a message.

    Args:
        code: the rule that was broken.
        message: what was found.
        status: the status to answer with.
        hint: what to send instead.
    """

    def __init__(self, code: HttpCode, message: str, *, status: int = 400, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rule = code
        self.status = status

    def text(self) -> str:
        """The sentence for Docker's `{"message": ...}`."""
        base = f"{self.message} [{self.rule}]"
        return f"{base}: {self.hint}" if self.hint else base


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """One request head that obeys every rule of this reader.

    `content_length` and `chunked` exclude each other; with neither there is no body. `upgrade` is the
    lower-case protocol of an `Upgrade` header that `Connection` also names, else None.
    """

    method: str
    target: bytes
    headers: tuple[Header, ...]
    content_length: int | None
    chunked: bool
    upgrade: bytes | None
    expect_continue: bool
    keep_alive: bool
    version: str = "1.1"

    def header(self, name: bytes) -> bytes | None:
        """The first value under this lower-case name."""
        return next((value for key, value in self.headers if key == name), None)

    @property
    def has_body(self) -> bool:
        """Whether body bytes follow the head."""
        return self.chunked or bool(self.content_length)


class Framing(StrEnum):
    """How the end of a response body is found (RFC 9112, section 6.3)."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """One response head of the daemon.

    `framing` and `content_length` say what the *body* does, the request's method taken into account; the
    `Content-Length` header itself stays in `headers`. `verbatim`: the bytes hold no hop-by-hop field, so
    that they can be passed on as they are.
    """

    status: int
    reason: bytes
    headers: tuple[Header, ...]
    framing: Framing
    content_length: int
    keep_alive: bool
    verbatim: bool

    def header(self, name: bytes) -> bytes | None:
        """The first value under this lower-case name."""
        return next((value for key, value in self.headers if key == name), None)
