"""Body readers: where a body ends, and which bytes are its payload.

Pure. A reader is fed what arrived and says how much of it belonged to the body; the rest is the next
message. Source: RFC 9112 section 7.1 (chunked), read strictly: CR LF only, hexadecimal digits only,
extensions and trailers read and dropped.
"""

import re
from enum import Enum, auto
from typing import Protocol

from gate.http.message import HttpCode, HttpError

Piece = bytes | memoryview
"""A slice of what was fed; valid as long as the fed buffer is."""

MAX_CHUNK_LINE_BYTES = 4096
"""Longest chunk-size line with its extensions; Go's net/http has the same bound."""

MAX_TRAILER_BYTES = 16 * 1024
"""Longest trailer section; it is dropped in any case."""

_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,16})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")
_MAX_CHUNK = 2**63 - 1
_USUAL_LINE_BYTES = 24
"""Chunk lines are this short nearly always, so that nothing longer is copied to look for their end."""


class BodyReader(Protocol):
    """What a body reader can do."""

    @property
    def done(self) -> bool:
        """Whether the body's last byte was fed."""
        ...

    def feed(self, data: Piece) -> tuple[list[Piece], int]:
        """The payload in `data`, in order, and how many of its bytes belong to the body.

        Raises:
            HttpError: the bytes are no such body; the connection cannot be used further.
        """
        ...


class EmptyReader:
    """No body."""

    __slots__ = ()
    done = True

    def feed(self, data: Piece) -> tuple[list[Piece], int]:  # noqa: ARG002 - the reader protocol
        """Nothing belongs to the body."""
        return [], 0


EMPTY = EmptyReader()


class LengthReader:
    """A body of a known number of bytes."""

    __slots__ = ("_left", "done")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: Piece) -> tuple[list[Piece], int]:
        """All of `data` up to the body's length."""
        size = len(data)
        if size < self._left:
            self._left -= size
            return [data], size
        taken = self._left
        self._left = 0
        self.done = True
        return ([data[:taken]] if taken else []), taken


class _At(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()


class ChunkedReader:
    """A chunked body."""

    __slots__ = ("_at", "_left", "_line", "_trailer_bytes", "done")

    def __init__(self) -> None:
        self._at = _At.SIZE
        self._left = 0
        self._line = b""
        self._trailer_bytes = 0
        self.done = False

    def feed(self, data: Piece) -> tuple[list[Piece], int]:
        """The payload of whole and partial chunks; sizes, extensions and trailers are dropped."""
        pieces: list[Piece] = []
        position = 0
        size = len(data)
        while position < size and not self.done:
            if self._at is _At.DATA:
                taken = min(self._left, size - position)
                pieces.append(data[position : position + taken])
                position += taken
                self._left -= taken
                if not self._left:
                    self._at = _At.DATA_END
            else:
                position = self._read_line(data, position)
        return pieces, position

    def _read_line(self, data: Piece, position: int) -> int:
        limit = 2 if self._at is _At.DATA_END else MAX_CHUNK_LINE_BYTES + 2
        window = bytes(data[position : position + min(limit - len(self._line), _USUAL_LINE_BYTES)])
        line = self._line + window
        end = line.find(b"\n")
        if end < 0 and len(window) == _USUAL_LINE_BYTES:
            window = bytes(data[position : position + limit - len(self._line)])
            line = self._line + window
            end = line.find(b"\n")
        if end < 0:
            if len(line) >= limit or (b"\r" in line[:-1]):
                raise _bad_chunk("a chunk line does not end with CR LF")
            self._line = line
            return position + len(window)
        if end == 0 or line[end - 1] != 0x0D:
            raise _bad_chunk("a chunk line ends with a bare LF")
        consumed = end + 1 - len(self._line)
        self._line = b""
        self._end_of_line(line[: end - 1])
        return position + consumed

    def _end_of_line(self, line: bytes) -> None:
        if self._at is _At.DATA_END:
            if line:
                raise _bad_chunk("a chunk is longer than its size says")
            self._at = _At.SIZE
        elif self._at is _At.SIZE:
            self._start_chunk(line)
        elif not line:
            self.done = True
        else:
            self._trailer_bytes += len(line) + 2
            if self._trailer_bytes > MAX_TRAILER_BYTES or _TRAILER_LINE.fullmatch(line) is None:
                raise _bad_chunk("the trailer section is malformed or too long")

    def _start_chunk(self, line: bytes) -> None:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise _bad_chunk(f"{line[:40].decode('latin-1')!r} is not a chunk size")
        self._left = int(match[1], 16)
        if self._left > _MAX_CHUNK:
            raise _bad_chunk(f"a chunk of {self._left} bytes is beyond any body")
        self._at = _At.DATA if self._left else _At.TRAILER


def reader_for(content_length: int | None, *, chunked: bool) -> BodyReader:
    """The reader for a message framed like this; neither means no body."""
    if chunked:
        return ChunkedReader()
    if content_length:
        return LengthReader(content_length)
    return EMPTY


def _bad_chunk(message: str) -> HttpError:
    return HttpError(
        HttpCode.CHUNK, message, hint="hexadecimal sizes of at most 16 digits, lines that end with CR LF"
    )
