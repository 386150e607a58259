"""Whether an audit log is whole: each file by itself, then all of them together. Pure.

The chain proves that nothing *between* its ends was changed, dropped, inserted or moved. Lines cut off at its
end leave a shorter chain that is whole; only an anchor kept elsewhere tells.

Old files are *thinned* (see `gate.audit`): their denials are taken out, everything else stays. A thinned file
no longer chains by itself; the line that tells of the thinning holds its SHA-256 and the links to both sides.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from base.errors import MalformedError
from gate.core.audit_chain import Event, Record, Tip, line_hash, parse


class Break(StrEnum):
    """How a chain is broken; the values are stable."""

    MALFORMED = "malformed"  # no line of an audit log
    SEQUENCE = "sequence"  # lines are missing, doubled or out of order
    LINK = "link"  # the line before is not the one that was there
    THINNED = "thinned"  # a thinned file that no line vouches for
    EXPECTED = "expected"  # not the line that the anchor says


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Where the chain is broken. `line` counts from 1 within the file; 0 is the file as a whole."""

    code: Break
    file: str
    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinned:
    """What a line tells of a file whose denials were taken out."""

    file: str
    first_seq: int
    first_prev: str
    last: Tip
    sha256: str

    def to_data(self) -> Mapping[str, str | int]:
        """As a line carries it."""
        return {
            "first_seq": self.first_seq,
            "first_prev": self.first_prev,
            "last_seq": self.last.seq,
            "last_hash": self.last.hash,
            "sha256": self.sha256,
        }

    @classmethod
    def of(cls, record: Record) -> "Thinned | None":
        """What the line tells, None when it tells of no thinning that can be understood."""
        if record.entry.event != Event.AUDIT_THINNED:
            return None
        match record.entry.data:
            case {
                "first_seq": int(first_seq),
                "first_prev": str(first_prev),
                "last_seq": int(last_seq),
                "last_hash": str(last_hash),
                "sha256": str(sha256),
            }:
                last = Tip(last_seq, last_hash)
                return cls(
                    file=record.entry.subject,
                    first_seq=first_seq,
                    first_prev=first_prev,
                    last=last,
                    sha256=sha256,
                )
            case _:
                return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """One file by itself.

    `first_seq` and `first_prev` are of its first line, `tip` is its end; for a file without lines they are
    None. `torn_bytes` follow the last newline. `anchor` is what the line of the expected number hashes to.
    """

    name: str
    thin: bool
    lines: int
    first_seq: int | None
    first_prev: str
    tip: Tip | None
    torn_bytes: int
    sha256: str
    recovered: int
    thinned: tuple[Thinned, ...]
    problems: tuple[Problem, ...]
    anchor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole log. `recovered` counts lines that tell of a repair after a crash."""

    files: int
    lines: int
    tip: Tip
    recovered: int
    torn_bytes: int
    problems: tuple[Problem, ...]

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class FileChecker:
    """Takes a file's lines in order, then gives the judgement.

    Args:
        name: the file's name.
        thin: whether it was thinned, so that its lines only have to be in order.
        expect_seq: a line whose hash is wanted.
    """

    def __init__(self, name: str, *, thin: bool = False, expect_seq: int | None = None) -> None:
        self._name = name
        self._thin = thin
        self._expect_seq = expect_seq
        self._anchor: str | None = None
        self._digest = hashlib.sha256()
        self._count = 0
        self._recovered = 0
        self._first: Record | None = None
        self._tip: Tip | None = None
        self._thinned: list[Thinned] = []
        self._problems: list[Problem] = []

    def line(self, raw: bytes) -> None:
        """Take the next line, newline included."""
        self._count += 1
        self._digest.update(raw)
        try:
            record = parse(raw)
        except MalformedError as exc:
            self._problem(Break.MALFORMED, exc.message)
            self._tip = None if self._tip is None else self._tip.after(raw)
            return
        if self._tip is None and self._count == 1:
            self._first = record
        elif self._tip is not None:
            self._follow(self._tip, record)
        self._tip = Tip(record.seq, line_hash(raw))
        if record.seq == self._expect_seq:
            self._anchor = self._tip.hash
        self._recovered += record.entry.event == Event.AUDIT_RECOVERED
        told = Thinned.of(record)
        if told is not None:
            self._thinned.append(told)

    def done(self, torn: bytes = b"") -> FileCheck:
        """The judgement; `torn` is what follows the last newline."""
        self._digest.update(torn)
        return FileCheck(
            name=self._name,
            thin=self._thin,
            lines=self._count,
            first_seq=None if self._first is None else self._first.seq,
            first_prev="" if self._first is None else self._first.prev,
            tip=self._tip,
            torn_bytes=len(torn),
            sha256=self._digest.hexdigest(),
            recovered=self._recovered,
            thinned=tuple(self._thinned),
            problems=tuple(self._problems),
            anchor=self._anchor,
        )

    def _follow(self, tip: Tip, record: Record) -> None:
        if self._thin:
            if record.seq <= tip.seq:
                self._problem(Break.SEQUENCE, f"line {record.seq} stands behind line {tip.seq}")
            return
        problem = _joint(tip, record.seq, record.prev)
        if problem is not None:
            self._problem(*problem)

    def _problem(self, code: Break, message: str) -> None:
        self._problems.append(Problem(code=code, file=self._name, line=self._count, message=message))


def judge(files: Sequence[FileCheck], *, expect: Tip | None = None) -> Report:
    """Join the files, oldest first, and compare with an anchor where there is one."""
    told = {each.file: each for file in files for each in file.thinned}
    problems: list[Problem] = []
    tip = Tip.start()
    for file in files:
        problems.extend(file.problems)
        if file.torn_bytes and file is not files[-1]:
            message = f"ends in {file.torn_bytes} bytes without a newline"
            problems.append(Problem(code=Break.MALFORMED, file=file.name, line=0, message=message))
        tip = _join_thinned(tip, file, told, problems) if file.thin else _join(tip, file, problems)
    if expect is not None:
        problems.extend(_compare(files, told, tip, expect))
    return Report(
        files=len(files),
        lines=sum(file.lines for file in files),
        tip=tip,
        recovered=sum(file.recovered for file in files),
        torn_bytes=files[-1].torn_bytes if files else 0,
        problems=tuple(problems),
    )


def without_denials(lines: Iterable[bytes]) -> tuple[bytes, int]:
    """A file without its denials, and how many lines those were."""
    kept, removed = [], 0
    for line in lines:
        if parse(line).entry.event == Event.REQUEST_DENIED:
            removed += 1
        else:
            kept.append(line)
    return b"".join(kept), removed


def _join(tip: Tip, file: FileCheck, problems: list[Problem]) -> Tip:
    if file.first_seq is not None:
        problem = _joint(tip, file.first_seq, file.first_prev)
        if problem is not None:
            problems.append(Problem(code=problem[0], file=file.name, line=1, message=problem[1]))
    return file.tip or tip


def _join_thinned(tip: Tip, file: FileCheck, told: Mapping[str, Thinned], problems: list[Problem]) -> Tip:
    claim = told.get(file.name)
    if claim is None or claim.sha256 != file.sha256:
        what = "was changed" if claim is not None else "is not the log's own: no line tells of it"
        message = f"the thinned file {what}"
        problems.append(Problem(code=Break.THINNED, file=file.name, line=0, message=message))
    if claim is None:
        return file.tip or tip
    problem = _joint(tip, claim.first_seq, claim.first_prev)
    if problem is not None:
        problems.append(Problem(code=problem[0], file=file.name, line=0, message=problem[1]))
    return claim.last


def _joint(tip: Tip, seq: int, prev: str) -> tuple[Break, str] | None:
    """What is wrong with a line of this number and `prev` behind `tip`."""
    if seq > tip.seq + 1:
        missing = f"line {tip.seq + 1}" if seq == tip.seq + 2 else f"lines {tip.seq + 1} to {seq - 1}"
        return Break.SEQUENCE, f"{missing} missing before line {seq}"
    if seq <= tip.seq:
        return Break.SEQUENCE, f"line {seq} stands behind line {tip.seq}"
    if prev != tip.hash:
        before = f"line {tip.seq} before it is not" if tip.seq else "it does not begin the log: that is not"
        return Break.LINK, f"line {seq} was written after another line: {before} what was there"
    return None


def _compare(
    files: Sequence[FileCheck], told: Mapping[str, Thinned], tip: Tip, expect: Tip
) -> Iterable[Problem]:
    anchors = {file.anchor for file in files if file.anchor is not None}
    anchors |= {each.last.hash for each in told.values() if each.last.seq == expect.seq}
    if expect.hash in anchors or expect == Tip.start():
        return ()
    if anchors:
        message = f"line {expect.seq} is not the one expected"
    elif expect.seq > tip.seq:
        message = f"line {expect.seq} is expected, but the log ends at line {tip.seq}: its end was cut off"
    else:
        message = f"line {expect.seq} is no longer kept, so it cannot be compared"
    return (Problem(code=Break.EXPECTED, file=files[-1].name if files else "", line=0, message=message),)
