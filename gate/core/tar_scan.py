"""Looks at a tar archive's headers while the archive passes by, and stops it before a device node. Pure.

Source: POSIX pax and ustar, the GNU manual on sparse and long-name entries, and what Go's `archive/tar` makes
of each (dockerd reads uploads with it). Nothing is kept but one header, or the one extended header that may
change an entry's size. What two readers could take for different archives is refused: only then is what was
looked at what the daemon unpacks.

Compressed uploads are refused: the daemon would look for the program that unpacks them in the container's
own files and run it as root on the host (CVE-2026-41567 and its kin).
"""

import re
from dataclasses import dataclass
from enum import Enum, auto

from gate.core.denial import Denial, Rule, broken, malformed, refuse, show

BLOCK = 512
EXTENDED_LIMIT_BYTES = 1024 * 1024
"""Longest extended header or long name, as in Go."""

_LARGEST = (1 << 63) - 1
_ZEROS = bytes(64 * 1024)
_COMPRESSED = (b"BZh", b"\x1f\x8b\x08", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # zstd frames that hold no data
_LONGEST_MAGIC = 6
_OCTAL = re.compile(rb"[ \0]*([0-7]*)[ \0]*\Z")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ")
_DECIMAL = re.compile(rb"[0-9]{1,18}\Z")

_NODES = {b"3": "a character device", b"4": "a block device"}
_HEADER_ONLY = frozenset(b"1256")
_WITH_DATA = frozenset(b"07")
_LEGACY, _SPARSE = 0, ord("S")
_LONG = frozenset(b"KL")
_EXTENDED, _GLOBAL = ord("x"), ord("g")
_GNU_MAGIC = b"ustar  \0"
_IS_EXTENDED_OLD, _IS_EXTENDED_MORE = 482, 504


class _Next(Enum):
    HEADER = auto()
    SPARSE_MAP = auto()  # blocks that continue an old GNU sparse header
    SECOND_ZERO = auto()
    NOTHING = auto()  # after the end: zeros


@dataclass(slots=True)
class _Pending:
    """What headers before an entry say about it."""

    extended: bool = False
    size: int | None = None
    named: bool = False


class _StopError(Exception):
    """Carries the denial out of the depths."""

    def __init__(self, denial: Denial) -> None:
        super().__init__(denial.message())
        self.denial = denial


class TarScan:
    """One archive. Feed it each piece before the piece is passed on; the first denial ends it."""

    __slots__ = (
        "_at",
        "_block",
        "_denial",
        "_global",
        "_next",
        "_pax",
        "_pending",
        "_skip",
        "_sparse_size",
        "_started",
    )

    def __init__(self) -> None:
        self._next = _Next.HEADER
        self._block = bytearray()
        self._skip = 0
        self._pax: bytearray | None = None
        self._at = 0
        self._global = False
        self._pending = _Pending()
        self._sparse_size = 0
        self._started = False
        self._denial: Denial | None = None

    def feed(self, piece: bytes | memoryview) -> Denial | None:
        """Look at the next bytes; a denial means that the daemon must get none of them."""
        if self._denial is None:
            try:
                self._feed(memoryview(piece))
            except _StopError as stop:
                self._denial = stop.denial
        return self._denial

    def finish(self) -> Denial | None:
        """The archive ends here; a denial means that it ends in the middle of something."""
        if self._denial is not None:
            return self._denial
        whole = (
            not self._block and not self._skip and self._pax is None and self._next is not _Next.SPARSE_MAP
        )
        if whole and self._pending == _Pending():
            return None
        return malformed("the archive ends in the middle of an entry", Rule.ARCHIVE_MALFORMED)

    def _feed(self, view: memoryview) -> None:
        start, size = 0, len(view)
        while start < size:
            if self._skip:
                taken = min(self._skip, size - start)
                if self._pax is not None:
                    self._pax += view[start : start + taken]
                self._skip -= taken
                start += taken
                if not self._skip and self._pax is not None:
                    self._extended()
            elif self._next is _Next.NOTHING:
                _only_zeros(view[start:])
                return
            else:
                taken = min(BLOCK - len(self._block), size - start)
                self._block += view[start : start + taken]
                start += taken
                if not self._started:
                    self._check_magic()
                if len(self._block) == BLOCK:
                    block = bytes(self._block)
                    self._block.clear()
                    self._take(block)

    def _check_magic(self) -> None:
        """Compressed data is told by its first bytes, as the daemon does."""
        head = bytes(self._block[:_LONGEST_MAGIC])
        if head.startswith(_COMPRESSED) or _SKIPPABLE.match(head):
            raise _StopError(refuse([broken(Rule.ARCHIVE_COMPRESSED, "the archive is compressed")]))
        self._started = len(head) == _LONGEST_MAGIC

    def _take(self, block: bytes) -> None:
        """One whole block that is not data."""
        if self._next is _Next.SPARSE_MAP:
            self._more_sparse(block[_IS_EXTENDED_MORE])
        elif self._next is _Next.SECOND_ZERO:
            if block != _ZEROS[:BLOCK]:
                raise _malformed("a zero block is followed by something else")
            self._next = _Next.NOTHING
        elif block == _ZEROS[:BLOCK]:
            if self._pending != _Pending():
                raise _malformed("an extended header belongs to no entry")
            self._next = _Next.SECOND_ZERO
        else:
            self._header(block)

    def _header(self, block: bytes) -> None:
        _check_sum(block)
        kind, size = block[156], _number(block[124:136])
        if word := _NODES.get(bytes((kind,))):
            name = show(block[:100].partition(b"\0")[0].decode("utf-8", "replace"))
            raise _StopError(refuse([broken(Rule.ARCHIVE_DEVICE, f"the archive holds {word}, {name}")]))
        if kind in (_EXTENDED, _GLOBAL):
            self._begin_extended(size, is_global=kind == _GLOBAL)
        elif kind in _LONG:
            self._pending.named = True
            self._data(_limited(size))
        else:
            self._entry(kind, size, block)

    def _entry(self, kind: int, size: int, block: bytes) -> None:
        """A header that stands for a file of some kind; it uses up what was said before it."""
        pending, self._pending = self._pending, _Pending()
        data = size if pending.size is None else pending.size
        if kind in _HEADER_ONLY:
            if data:
                raise _malformed("an entry that has no data has a size")
        elif kind == _LEGACY:
            _check_legacy(block, data, pending)
            self._data(data)
        elif kind == _SPARSE:
            if block[257:265] != _GNU_MAGIC or pending.size is not None:
                raise _malformed("a sparse entry is not written as GNU tar does")
            self._sparse_size = data
            self._more_sparse(block[_IS_EXTENDED_OLD])
        elif kind in _WITH_DATA:
            self._data(data)
        else:
            raise _malformed(f"an entry has the type {show(chr(kind))}, which no reader of archives knows")

    def _data(self, size: int) -> None:
        """Pass over the data and its padding."""
        self._skip = -(-size // BLOCK) * BLOCK

    def _more_sparse(self, is_extended: int) -> None:
        if is_extended:
            self._next = _Next.SPARSE_MAP
        else:
            self._next = _Next.HEADER
            self._data(self._sparse_size)

    def _begin_extended(self, size: int, *, is_global: bool) -> None:
        if self._pending.extended:
            raise _malformed("an extended header belongs to no entry")
        self._global = is_global
        self._pending.extended = not is_global
        self._at = _limited(size)
        self._data(size)
        self._pax = bytearray()
        if not self._skip:
            self._extended()

    def _extended(self) -> None:
        """A whole extended header: only what changes how the archive is read matters here."""
        data, self._pax = bytes((self._pax or bytearray())[: self._at]), None
        seen: set[bytes] = set()
        for key, value in _records(data):
            if key not in (b"size", b"path"):
                continue
            if key in seen or self._global:
                raise _malformed(f"an extended header gives {key.decode()} twice or for all entries")
            seen.add(key)
            if key == b"path":
                self._pending.named = True
            elif _DECIMAL.match(value):
                self._pending.size = int(value)
            else:
                raise _malformed("an extended header gives a size that is no number")


def _malformed(detail: str) -> _StopError:
    return _StopError(malformed(f"the archive cannot be read in one way: {detail}", Rule.ARCHIVE_MALFORMED))


def _only_zeros(view: memoryview) -> None:
    for start in range(0, len(view), len(_ZEROS)):
        part = view[start : start + len(_ZEROS)]
        if part != _ZEROS[: len(part)]:
            raise _malformed("something follows its end")


def _check_sum(block: bytes) -> None:
    """Unsigned, or signed as some old programs did; the field itself counts as spaces."""
    said = _number(block[148:156])
    rest = block[:148] + b" " * 8 + block[156:]
    unsigned = sum(rest)
    if said != unsigned and said != unsigned - 256 * sum(byte > 127 for byte in rest):
        raise _malformed("the check sum of a header is wrong")


def _number(field: bytes) -> int:
    """Octal digits between spaces and NULs, or GNU's binary form."""
    if field[0] & 0x80:
        value = int.from_bytes(field) & ((1 << (len(field) * 8 - 1)) - 1)
        if field[0] & 0x40 or value > _LARGEST:
            raise _malformed("a number in a header is negative or too large")
        return value
    found = _OCTAL.match(field)
    if found is None:
        raise _malformed("a number in a header is not octal")
    return int(found.group(1) or b"0", 8)


def _limited(size: int) -> int:
    if size > EXTENDED_LIMIT_BYTES:
        raise _malformed(f"an extended header is longer than {EXTENDED_LIMIT_BYTES} bytes")
    return size


def _check_legacy(block: bytes, size: int, pending: _Pending) -> None:
    """Old archives mark a directory by a slash at the end of a file's name, and then it has no data."""
    name = block[:100].partition(b"\0")[0]
    if size and (pending.named or not name or name.endswith(b"/")):
        raise _malformed("it is not clear whether an entry is a directory or a file")


def _records(data: bytes) -> list[tuple[bytes, bytes]]:
    """The records of an extended header: length, key, `=`, value, newline."""
    found = []
    at = 0
    while at < len(data):
        length = _RECORD.match(data, at)
        end = at + int(length.group(1)) if length else 0
        if length is None or not length.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise _malformed("an extended header is not a list of records")
        key, equals, value = data[length.end() : end - 1].partition(b"=")
        if not key or not equals:
            raise _malformed("an extended header has a record without a key")
        found.append((key, value))
        at = end
    return found
