"""The audit log on disk: appending, rotating, thinning, reading.

Several processes append (the gate, every `rdc`), so a lock file orders them; the end of the chain is read
from the file's end under that lock. What was appended is on disk when `append` returns. A writer that was
killed leaves at most an unfinished line, which the next one takes away and says so in a line of its own.

A full file is renamed to `audit.<last seq>.jsonl` and the chain goes on in a new one. Of all but the newest
of those the denials are taken out ("thinned"), so that a flood of them fills no disk and yet pushes out no
grant; the line that tells of it keeps the chain verifiable (see `gate.core.audit_verify`).
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from base.clock import Clock
from base.errors import AccessError, DamagedError, MalformedError, RdcError
from base.files import fsync_directory, make_directory, remove_durably, write_atomic
from base.layout import Layout
from gate.core.audit_chain import Actor, Entry, Event, Record, Tip, chain, line_hash, parse
from gate.core.audit_verify import FileCheck, FileChecker, Report, Thinned, judge, without_denials
from grants.lock import locked

FILE_MAX_BYTES = 10 * 1024 * 1024
WHOLE_FILES = 20
"""How many full files keep their denials: 200 MB, months of ordinary use."""

LOCK_TIMEOUT_S = 30.0
_WINDOW_BYTES = 64 * 1024
_TORN_SHOWN = 200
_DIGITS = 15
_MODE = 0o600
_ROTATED = re.compile(r"audit\.(?P<seq>\d{15})(?P<thin>\.thin)?\.jsonl", re.ASCII)
_NO_ROOM = "make room, or mend what the message says; nothing that was recorded is lost"


@dataclass(frozen=True, slots=True)
class _Rotated:
    """A full file; `last_seq` is the number of its last line."""

    path: Path
    last_seq: int
    thin: bool


class _Opened:
    """One file as it was when it was opened: what is appended later is not read."""

    __slots__ = ("_size", "_stream", "path", "rotated")

    def __init__(self, path: Path, rotated: _Rotated | None, stream: BinaryIO) -> None:
        self.path = path
        self.rotated = rotated
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size

    def ends_by(self, seq: int) -> bool:
        """Whether its last line that can be read is `seq` or an earlier one."""
        end = _end_of(self._stream.fileno(), self._size)
        return end is not None and end.tip.seq <= seq

    def lines(self) -> Iterator[bytes]:
        """Every line with its newline; the last one may lack it."""
        left = self._size
        while left > 0 and (line := self._stream.readline(left)):
            left -= len(line)
            yield line


@dataclass(frozen=True, slots=True)
class _End:
    """How a file ends: the chain's tip, where the last whole line ends, and what follows it."""

    tip: Tip
    whole_bytes: int
    torn: bytes
    damaged_lines: int


class AuditLog:
    """The machine's audit log.

    Args:
        layout: where it lies.
        clock: tells when the log's own events happened.
        actor: who writes, for those events.
        file_max_bytes: a file that would grow beyond this is full.
        whole_files: how many full files keep their denials; at least 1.
        lock_timeout_s: how long to wait for another writer.
    """

    def __init__(
        self,
        layout: Layout,
        clock: Clock,
        actor: Actor,
        *,
        file_max_bytes: int = FILE_MAX_BYTES,
        whole_files: int = WHOLE_FILES,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self._path = layout.audit_log
        self._lock = self._path.with_name(self._path.name + ".lock")
        self._clock = clock
        self._actor = actor
        self._file_max_bytes = file_max_bytes
        self._whole_files = whole_files
        self._lock_timeout_s = lock_timeout_s

    def append(self, entries: Sequence[Entry]) -> Tip:
        """Add the entries, all or none, and return the chain's end once they are on disk.

        Without entries only what a crash left is repaired.

        Raises:
            RdcError: they could not be written; the log is as it was.
        """
        with self._writing():
            try:
                return self._append(entries)
            except OSError as exc:
                message = f"cannot write {self._path}: {exc.strerror}"
                raise AccessError(message, hint=_NO_ROOM) from exc

    def records(self) -> Iterator[Record]:
        """Every line that can be read, oldest first.

        Raises:
            AccessError: the log may not be read.
        """
        with self._snapshot() as files:
            for each in files:
                yield from _records(each)

    def last(self, count: int, wanted: Callable[[Record], bool] = lambda _: True) -> tuple[Record, ...]:
        """The last `count` lines that are wanted, oldest first; reads no more files than it must.

        Raises:
            AccessError: the log may not be read.
        """
        found: list[Record] = []
        with self._snapshot() as files:
            for each in reversed(files):
                if len(found) >= count:
                    break
                found = [*(record for record in _records(each) if wanted(record)), *found]
        return tuple(found[-count:] if count else ())

    def after(self, seq: int) -> tuple[Record, ...]:
        """The lines behind line `seq`, oldest first; without new ones only the log's end is looked at.

        Raises:
            AccessError: the log may not be read.
        """
        found: list[Record] = []
        with self._snapshot() as files:
            if files and files[-1].ends_by(seq):
                return ()
            for each in files:
                if each.rotated is None or each.rotated.last_seq > seq:
                    found += [record for record in _records(each) if record.seq > seq]
        return tuple(found)

    def verify(self, expect: Tip | None = None) -> Report:
        """Check every file as it is now, writers not being held up meanwhile.

        Args:
            expect: the end of the chain as somebody wrote it down earlier.

        Raises:
            AccessError: the log may not be read.
        """
        with self._snapshot() as files:
            return judge([_check(each, expect) for each in files], expect=expect)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        make_directory(self._path.parent, mode=0o700)
        with locked(self._lock, timeout_s=self._lock_timeout_s):
            yield

    def _append(self, entries: Sequence[Entry]) -> Tip:
        descriptor = self._open()
        try:
            end = self._end(descriptor)
            pending = [*self._repaired(end), *entries]
            if not pending:
                return end.tip
            data, tip = chain(end.tip, pending)
            beyond = end.whole_bytes > 0 and end.whole_bytes + len(data) > self._file_max_bytes
            if not beyond or end.torn:
                _write(descriptor, end, data)
                return tip
        finally:
            os.close(descriptor)
        return self._rotate(end.tip, pending)

    def _open(self) -> int:
        """The current file, made when missing."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._path, flags)
        except FileNotFoundError:
            descriptor = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, _MODE)
            fsync_directory(self._path.parent)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise AccessError(f"{self._path} is no regular file", hint="move it away")
        return descriptor

    def _end(self, descriptor: int) -> _End:
        size = os.fstat(descriptor).st_size
        found = _end_of(descriptor, size)
        if found is not None:
            return found
        torn = os.pread(descriptor, size, 0)
        if b"\n" in torn:
            raise DamagedError(
                f"{self._path} holds no line of an audit log",
                hint=f"'mv {self._path} {self._path}.damaged' lets the chain go on; keep that file",
            )
        return _End(self._rotated_tip(), 0, torn, 0)

    def _rotated_tip(self) -> Tip:
        """The end of the newest full file: a writer may have been killed before it began the next one."""
        rotated = self._rotated()
        if not rotated:
            return Tip.start()
        with rotated[-1].path.open("rb") as stream:
            found = _end_of(stream.fileno(), os.fstat(stream.fileno()).st_size)
        if found is None:
            raise DamagedError(f"{rotated[-1].path} holds no line of an audit log", hint="move it away")
        return found.tip

    def _repaired(self, end: _End) -> list[Entry]:
        """The line that tells of a repair, where one is due."""
        if not end.torn and not end.damaged_lines:
            return []
        parts: list[str] = []
        data: dict[str, str | int] = {}
        if end.torn:
            shown = end.torn[:_TORN_SHOWN].decode("ascii", "backslashreplace")
            parts.append(f"took away {len(end.torn)} bytes of an unfinished line: {shown}")
            data = {"torn_sha256": line_hash(end.torn)}
        if end.damaged_lines:
            parts.append(f"went on after {end.damaged_lines} lines that cannot be read")
        detail = "; ".join(parts)
        return [self._own(Event.AUDIT_RECOVERED, self._path.name, detail, data)]

    def _rotate(self, tip: Tip, pending: Sequence[Entry]) -> Tip:
        """Go on in a new file, then thin those that are too many; each step may be the last one done."""
        full = self._path.with_name(f"audit.{tip.seq:0{_DIGITS}d}.jsonl")
        os.rename(self._path, full)  # noqa: PTH104 - the same OSError handling as the rest here
        fsync_directory(self._path.parent)
        begun = self._own(Event.AUDIT_ROTATED, full.name, f"goes on from {full.name}", {})
        tip = self._add(tip, [begun, *pending])
        # The entries are on disk: what fails from here on is no failure of theirs, and is done next time.
        with contextlib.suppress(OSError, RdcError):
            for old in [each for each in self._rotated() if not each.thin][: -self._whole_files]:
                tip = self._thin(old, tip)
        return tip

    def _add(self, tip: Tip, entries: Sequence[Entry]) -> Tip:
        """Write to the current file, whose end is `tip`, or make it."""
        data, after = chain(tip, entries)
        descriptor = self._open()
        try:
            _write(descriptor, _End(tip, os.fstat(descriptor).st_size, b"", 0), data)
        finally:
            os.close(descriptor)
        return after

    def _thin(self, old: _Rotated, tip: Tip) -> Tip:
        """Take the denials out of a full file; one that is not whole is evidence, and left as it is."""
        with old.path.open("rb") as stream:
            lines = tuple(stream)
        checker = FileChecker(old.path.name)
        for line in lines:
            checker.line(line)
        check = checker.done()
        if check.problems or check.first_seq is None or check.tip is None or check.torn_bytes:
            return tip
        content, removed = without_denials(lines)
        target = old.path.with_name(f"audit.{old.last_seq:0{_DIGITS}d}.thin.jsonl")
        write_atomic(target, content, mode=_MODE)
        told = Thinned(
            file=target.name,
            first_seq=check.first_seq,
            first_prev=check.first_prev,
            last=check.tip,
            sha256=line_hash(content),
        )
        detail = f"took {removed} lines of denials out of {old.path.name}"
        tip = self._add(tip, [self._own(Event.AUDIT_THINNED, target.name, detail, told.to_data())])
        remove_durably(old.path)
        return tip

    def _own(self, event: Event, subject: str, detail: str, data: Mapping[str, str | int]) -> Entry:
        return Entry(
            at=self._clock.now(), event=event, actor=self._actor, subject=subject, detail=detail, data=data
        )

    def _rotated(self) -> tuple[_Rotated, ...]:
        """The full files, oldest first; a thinned one whose whole file is still there does not count."""
        found: dict[int, _Rotated] = {}
        for path in self._path.parent.iterdir():
            match = _ROTATED.fullmatch(path.name)
            if match is not None:
                each = _Rotated(path, int(match["seq"]), match["thin"] is not None)
                if not each.thin or each.last_seq not in found:
                    found[each.last_seq] = each
        return tuple(found[seq] for seq in sorted(found))

    @contextmanager
    def _snapshot(self) -> Iterator[tuple[_Opened, ...]]:
        """All files as they are at one moment, oldest first, the current one last."""
        with ExitStack() as stack:
            try:
                if not self._path.parent.is_dir():
                    yield ()
                    return
                with locked(self._lock, timeout_s=self._lock_timeout_s):
                    paths = [(each.path, each) for each in self._rotated()]
                    current = [(self._path, None)] if self._path.exists() else []
                    opened = tuple(
                        _Opened(path, rotated, stack.enter_context(path.open("rb")))
                        for path, rotated in (*paths, *current)
                    )
            except OSError as exc:
                raise AccessError(f"cannot read {self._path}: {exc.strerror}", hint="run it as root") from exc
            yield opened


def _end_of(descriptor: int, size: int) -> _End | None:
    """How a file of `size` bytes ends; None when no line of it can be read."""
    window = _WINDOW_BYTES
    while True:
        start = max(0, size - window)
        data = os.pread(descriptor, size - start, start)
        whole = data.rfind(b"\n") + 1
        lines = [line + b"\n" for line in data[:whole].split(b"\n")[:-1]]
        for damaged, line in enumerate(reversed(lines[1:] if start else lines)):
            try:
                record = parse(line)
            except MalformedError:
                continue
            tip = Tip(record.seq + damaged, line_hash(lines[-1]))
            return _End(tip, start + whole, data[whole:], damaged)
        if not start:
            return None
        window *= 8


def _write(descriptor: int, end: _End, data: bytes) -> None:
    """Put `data` behind the last whole line and wait until it is on disk; when that fails, as it was before.

    What a crash left is overwritten, not cut off first: its trace must not be lost when there is no room for
    the line that tells of it.
    """
    try:
        _write_at(descriptor, end.whole_bytes, data)
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            _write_at(descriptor, end.whole_bytes, end.torn)
            os.fsync(descriptor)
        raise


def _write_at(descriptor: int, offset: int, data: bytes) -> None:
    view, position = memoryview(data), offset
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
    os.ftruncate(descriptor, position)


def _records(opened: _Opened) -> Iterator[Record]:
    for line in opened.lines():
        with contextlib.suppress(MalformedError):
            yield parse(line)


def _check(opened: _Opened, expect: Tip | None) -> FileCheck:
    thin = opened.rotated is not None and opened.rotated.thin
    expect_seq = None if expect is None else expect.seq
    checker = FileChecker(opened.path.name, thin=thin, expect_seq=expect_seq)
    torn = b""
    for line in opened.lines():
        if line.endswith(b"\n"):
            checker.line(line)
        else:
            torn = line
    return checker.done(torn)
