from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core.audit_chain import Entry, Event, Tip, chain, line_hash, parse
from gate.core.audit_verify import Break, FileCheck, FileChecker, Report, Thinned, judge, without_denials
from tests.gate.test_audit_chain import DENIED, NOW, WHO

GRANTED = Entry(at=NOW, event=Event.GRANT_GRANTED, actor=WHO, subject="nvidia.com/gpu=0")


def lines_of(count: int) -> list[bytes]:
    entries = [replace(GRANTED if number % 3 else DENIED, detail=str(number)) for number in range(count)]
    return chain(Tip.start(), entries)[0].splitlines(keepends=True)


def check(
    lines: Sequence[bytes],
    name: str = "audit.jsonl",
    *,
    thin: bool = False,
    torn: bytes = b"",
    seq: int | None = None,
) -> FileCheck:
    checker = FileChecker(name, thin=thin, expect_seq=seq)
    for line in lines:
        checker.line(line)
    return checker.done(torn)


def verify(files: Sequence[Sequence[bytes]], expect: Tip | None = None) -> Report:
    seq = None if expect is None else expect.seq
    return judge([check(lines, f"{n}", seq=seq) for n, lines in enumerate(files)], expect=expect)


def split(lines: list[bytes], at: int) -> list[list[bytes]]:
    return [lines[:at], lines[at:]]


def codes(report: Report) -> set[Break]:
    return {problem.code for problem in report.problems}


def test_an_untouched_log_is_whole_however_it_is_parted() -> None:
    lines = lines_of(9)
    for at in range(10):
        report = verify(split(lines, at))
        assert report.whole
        assert (report.lines, report.tip) == (9, Tip(9, line_hash(lines[-1])))
    assert verify([]).whole
    assert verify([]).tip == Tip.start()


@given(data=st.data())
def test_any_change_of_one_line_is_found(data: st.DataObject) -> None:
    """Changed, dropped, doubled, moved or inserted anywhere but at the very end, however parted in files."""
    lines = lines_of(8)
    index = data.draw(st.integers(0, 6))
    line = lines[index]
    match data.draw(st.sampled_from(["byte", "drop", "double", "swap", "insert", "cut"])):
        case "byte":
            place = data.draw(st.integers(0, len(line) - 1))
            value = data.draw(st.integers(0, 255).filter(lambda value: value != line[place]))
            lines[index] = line[:place] + bytes([value]) + line[place + 1 :]
        case "drop":
            del lines[index]
        case "double":
            lines.insert(index, line)
        case "swap":
            other = data.draw(st.integers(0, 7).filter(lambda other: other != index))
            lines[index], lines[other] = lines[other], line
        case "insert":
            record = parse(line)
            lines.insert(index, chain(Tip(record.seq - 1, record.prev), [DENIED])[0])
        case "cut":
            lines[index] = line[: data.draw(st.integers(0, len(line) - 1))]
    text = b"".join(lines)
    lines = [each + b"\n" for each in text.split(b"\n")[:-1]]
    report = verify(split(lines, data.draw(st.integers(0, len(lines)))))
    assert not report.whole


def test_the_place_is_named() -> None:
    lines = lines_of(6)
    changed = [*lines[:2], lines[2].replace(b"/gpu=0", b"/gpu=1"), *lines[3:]]
    (problem,) = verify([changed]).problems
    assert (problem.code, problem.file, problem.line) == (Break.LINK, "0", 4)
    (problem,) = verify([lines[:2], lines[3:]]).problems
    assert (problem.code, problem.file, problem.line) == (Break.SEQUENCE, "1", 1)
    swapped = [*lines[:2], lines[3], lines[2], *lines[4:]]
    assert [each.line for each in verify([swapped]).problems] == [3, 4, 5]


def test_a_missing_file_is_found() -> None:
    lines = lines_of(9)
    parts = [lines[:3], lines[3:6], lines[6:]]
    assert verify(parts).whole
    for missing in (0, 1):
        left = [part for index, part in enumerate(parts) if index != missing]
        assert codes(verify(left)) == {Break.SEQUENCE}
    assert codes(verify([parts[1], parts[0], parts[2]])) == {Break.SEQUENCE}


def test_a_log_that_was_begun_anew_does_not_pass_for_the_old_one() -> None:
    lines, other = lines_of(4), chain(Tip.start(), [GRANTED] * 4)[0].splitlines(keepends=True)
    assert codes(verify([lines[:2], other[2:]])) == {Break.LINK}


def test_a_cut_end_is_found_by_an_anchor_only() -> None:
    lines = lines_of(6)
    anchor = Tip(5, line_hash(lines[4]))
    assert verify([lines[:4]]).whole
    assert codes(verify([lines[:4]], anchor)) == {Break.EXPECTED}
    assert verify(split(lines, 3), anchor).whole
    assert verify([lines], Tip(6, line_hash(lines[5]))).whole
    assert verify([lines], Tip.start()).whole
    assert codes(verify([lines], Tip(5, "0" * 64))) == {Break.EXPECTED}
    assert codes(verify([], anchor)) == {Break.EXPECTED}
    rewritten = chain(Tip.start(), [GRANTED] * 6)[0].splitlines(keepends=True)
    assert verify([rewritten]).whole
    assert codes(verify([rewritten], anchor)) == {Break.EXPECTED}


def test_an_unfinished_line_is_no_break_at_the_end_only() -> None:
    lines = lines_of(4)
    report = judge([check(lines, torn=b'{"seq":5')])
    assert report.whole
    assert report.torn_bytes == 8
    assert codes(judge([check(lines[:2], torn=b"{"), check(lines[2:])])) == {Break.MALFORMED}


def test_repairs_are_counted() -> None:
    repaired = replace(GRANTED, event=Event.AUDIT_RECOVERED)
    assert verify([chain(Tip.start(), [GRANTED, repaired])[0].splitlines(keepends=True)]).recovered == 1


def thinned_log() -> tuple[list[bytes], list[bytes]]:
    """A thinned file of lines 1 to 6, and the lines after it; the last one tells of the thinning."""
    lines = lines_of(9)
    full = check(lines[:6], "full")
    content, removed = without_denials(lines[:6])
    assert removed == 2
    assert full.first_seq is not None
    assert full.tip is not None
    told = Thinned(
        file="thin", first_seq=full.first_seq, first_prev=full.first_prev, last=full.tip,
        sha256=line_hash(content),
    )  # fmt: skip
    entry = Entry(at=NOW, event=Event.AUDIT_THINNED, actor=WHO, subject="thin", data=told.to_data())
    data, _ = chain(Tip(9, line_hash(lines[8])), [entry])
    return content.splitlines(keepends=True), [*lines[6:], data]


def judge_thinned(kept: list[bytes], rest: list[bytes], expect: Tip | None = None) -> Report:
    seq = None if expect is None else expect.seq
    return judge([check(kept, "thin", thin=True, seq=seq), check(rest, seq=seq)], expect=expect)


def test_a_thinned_file_keeps_the_chain_whole() -> None:
    kept, rest = thinned_log()
    assert [parse(line).seq for line in kept] == [2, 3, 5, 6]
    report = judge_thinned(kept, rest)
    assert report.whole
    assert report.tip.seq == 10
    lines = lines_of(9)
    assert judge_thinned(kept, rest, Tip(6, line_hash(lines[5]))).whole
    assert judge_thinned(kept, rest, Tip(3, line_hash(lines[2]))).whole
    assert codes(judge_thinned(kept, rest, Tip(4, line_hash(lines[3])))) == {Break.EXPECTED}


@pytest.mark.parametrize("index", range(4))
def test_a_thinned_file_cannot_be_changed_either(index: int) -> None:
    kept, rest = thinned_log()
    dropped = [line for place, line in enumerate(kept) if place != index]
    assert Break.THINNED in codes(judge_thinned(dropped, rest))
    edited = [line.replace(b"1000", b"1001") if place == index else line for place, line in enumerate(kept)]
    assert Break.THINNED in codes(judge_thinned(edited, rest))
    swapped = [*kept[1:], kept[0]]
    assert {Break.THINNED, Break.SEQUENCE} <= codes(judge_thinned(swapped, rest))


def test_a_thinned_file_needs_a_line_that_tells_of_it() -> None:
    kept, rest = thinned_log()
    assert Break.THINNED in codes(judge_thinned(kept, rest[:-1]))
    assert Break.SEQUENCE in codes(judge([check(rest)]))
    # a foreign file in between
    lines = lines_of(9)
    foreign = check([], "other", thin=True)
    report = judge([check(lines[:6]), foreign, check(lines[6:])])
    assert codes(report) == {Break.THINNED}


def test_a_line_that_tells_of_no_thinning_is_not_believed() -> None:
    entry = Entry(at=NOW, event=Event.AUDIT_THINNED, actor=WHO, subject="thin", data={"first_seq": "1"})
    line = chain(Tip.start(), [entry])[0]
    assert Thinned.of(parse(line)) is None
    assert Thinned.of(parse(chain(Tip.start(), [GRANTED])[0])) is None
