"""The log on disk: appends, crashes, rotation, thinning, several processes."""

import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from base.errors import AccessError, DamagedError
from base.layout import Layout
from gate.audit import AuditLog
from gate.core.audit_chain import Actor, Entry, Event, Tip, line_hash, parse
from gate.core.audit_verify import Break
from grants.lock import LockTimeoutError, locked
from tests.fake_clock import FakeClock
from tests.gate.test_audit_chain import DENIED, WHO

ROOT = Path(__file__).resolve().parents[2]
GRANTED = replace(DENIED, event=Event.GRANT_GRANTED, subject="nvidia.com/gpu=0", rules=())

OpenLog = Callable[..., AuditLog]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


@pytest.fixture
def open_log(layout: Layout) -> OpenLog:
    return lambda **options: AuditLog(layout, FakeClock(), WHO, **options)


@pytest.fixture
def log(open_log: OpenLog) -> AuditLog:
    return open_log()


def names(layout: Layout) -> list[str]:
    return sorted(path.name for path in layout.audit_log.parent.glob("*.jsonl"))


def events(log: AuditLog) -> list[str]:
    return [record.entry.event for record in log.records()]


def test_what_was_appended_is_there_for_root_only(log: AuditLog, layout: Layout) -> None:
    assert log.append([DENIED]).seq == 1
    tip = log.append([GRANTED, DENIED])
    lines = layout.audit_log.read_bytes().splitlines(keepends=True)
    assert tip == Tip(3, line_hash(lines[-1]))
    assert [record.entry for record in log.records()] == [DENIED, GRANTED, DENIED]
    assert stat.S_IMODE(layout.audit_log.stat().st_mode) == 0o600
    assert stat.S_IMODE(layout.audit_log.parent.stat().st_mode) == 0o700
    report = log.verify()
    assert report.whole
    assert (report.lines, report.tip) == (3, tip)


def test_a_log_that_was_never_written_is_whole_and_empty(log: AuditLog, layout: Layout) -> None:
    assert log.verify().whole
    assert log.last(5) == log.after(0) == ()
    assert not layout.audit_log.parent.exists()
    assert log.append([]) == Tip.start()
    assert log.verify().whole


def test_the_last_lines_are_read_over_files(open_log: OpenLog) -> None:
    log = open_log(file_max_bytes=1000)
    for number in range(12):
        log.append([replace(DENIED, detail=str(number))])
    said = [record.entry.detail for record in log.last(50) if record.entry.event == Event.REQUEST_DENIED]
    assert said == [str(number) for number in range(12)]
    assert [record.entry.detail for record in log.last(2, lambda each: each.entry.detail in "135")] == [
        "3",
        "5",
    ]
    assert log.last(0) == ()
    seqs = [record.seq for record in log.records()]
    assert seqs == list(range(1, len(seqs) + 1))
    for seq in (0, 3, len(seqs) - 1, len(seqs)):
        assert [record.seq for record in log.after(seq)] == seqs[seq:]


def test_rotation_goes_on_with_the_chain(open_log: OpenLog, layout: Layout) -> None:
    log = open_log(file_max_bytes=2000)
    for _ in range(20):
        log.append([GRANTED])
    assert len(names(layout)) > 3
    assert all((layout.audit_log.parent / name).stat().st_size <= 2000 for name in names(layout))
    assert log.verify().whole
    assert events(log).count(Event.AUDIT_ROTATED) == len(names(layout)) - 1
    first = parse(layout.audit_log.read_bytes().splitlines(keepends=True)[0])
    assert first.entry.event == Event.AUDIT_ROTATED
    assert first.entry.subject == f"audit.{first.seq - 1:015d}.jsonl"


def test_a_missing_or_changed_file_is_found(open_log: OpenLog, layout: Layout) -> None:
    log = open_log(file_max_bytes=2000)
    for _ in range(20):
        log.append([GRANTED])
    tip = log.verify().tip
    for name in names(layout)[:-1]:
        path = layout.audit_log.parent / name
        content = path.read_bytes()
        path.unlink()
        assert not log.verify().whole
        path.write_bytes(content.replace(b"gpu=0", b"gpu=1", 1))
        assert {problem.code for problem in log.verify().problems} == {Break.LINK}
        path.write_bytes(content)
    assert log.verify(tip).whole
    layout.audit_log.unlink()
    assert log.verify().whole
    assert {problem.code for problem in log.verify(tip).problems} == {Break.EXPECTED}


def test_old_files_lose_their_denials_and_nothing_else(open_log: OpenLog, layout: Layout) -> None:
    log = open_log(file_max_bytes=4000, whole_files=2)
    tips = [
        log.append([replace(GRANTED if number % 10 == 0 else DENIED, detail=f"{number}")])
        for number in range(120)
    ]
    whole = [name for name in names(layout) if name != "audit.jsonl" and ".thin." not in name]
    thinned = [name for name in names(layout) if ".thin." in name]
    assert len(whole) == 2
    assert len(thinned) > 3
    kept = [record.entry.detail for record in log.records() if record.entry.event == Event.GRANT_GRANTED]
    assert kept == [str(number) for number in range(0, 120, 10)]
    report = log.verify()
    assert report.whole
    assert log.verify(tips[0]).whole
    assert log.verify(tips[-1]).whole
    assert {each.code for each in log.verify(tips[1]).problems} == {Break.EXPECTED}
    assert max((layout.audit_log.parent / name).stat().st_size for name in thinned) < 2000
    victim = layout.audit_log.parent / thinned[1]
    victim.write_bytes(victim.read_bytes().replace(b"1000", b"1001", 1))
    assert {each.code for each in log.verify().problems} == {Break.THINNED}
    victim.unlink()
    assert {each.code for each in log.verify().problems} == {Break.SEQUENCE}


def test_a_changed_file_is_evidence_and_is_not_thinned(open_log: OpenLog, layout: Layout) -> None:
    log = open_log(file_max_bytes=2000, whole_files=1)
    while len(names(layout)) < 2:
        log.append([DENIED])
    victim = layout.audit_log.parent / names(layout)[0]
    changed = victim.read_bytes().replace(b"gpus-flag", b"gpus_flag", 1)
    victim.write_bytes(changed)
    for _ in range(20):
        log.append([DENIED])
    assert victim.read_bytes() == changed
    assert any(".thin." in name for name in names(layout))
    assert {each.code for each in log.verify().problems} == {Break.LINK}


def test_a_killed_thinning_is_done_again(open_log: OpenLog, layout: Layout) -> None:
    log = open_log(file_max_bytes=2000, whole_files=1)
    while len(names(layout)) < 2:
        log.append([DENIED])
    full = layout.audit_log.parent / names(layout)[0]
    thin = full.with_name(full.name.replace(".jsonl", ".thin.jsonl"))
    thin.write_bytes(b"half")
    assert log.verify().whole, "the whole file counts as long as it is there"
    for _ in range(20):
        log.append([GRANTED])
    assert not full.exists()
    assert thin.read_bytes() != b"half"
    assert log.verify().whole


@pytest.mark.parametrize("torn", [b'{"seq":2,"at', b"\x00" * 200_000, b"x"])
def test_an_unfinished_line_is_taken_away_and_told(log: AuditLog, layout: Layout, torn: bytes) -> None:
    log.append([DENIED])
    whole = layout.audit_log.read_bytes()
    layout.audit_log.write_bytes(whole + torn)
    report = log.verify()
    assert report.whole
    assert report.torn_bytes == len(torn)
    log.append([GRANTED])
    assert events(log) == [DENIED.event, Event.AUDIT_RECOVERED, GRANTED.event]
    told = log.last(2)[0].entry
    assert told.data["torn_sha256"] == line_hash(torn)
    assert layout.audit_log.read_bytes().startswith(whole)
    report = log.verify()
    assert report.whole
    assert (report.torn_bytes, report.recovered) == (0, 1)


def test_a_repair_needs_no_new_event(log: AuditLog, layout: Layout) -> None:
    log.append([DENIED])
    with layout.audit_log.open("ab") as stream:
        stream.write(b"torn")
    assert log.append([]).seq == 2
    assert log.append([]).seq == 2
    assert events(log)[-1] == Event.AUDIT_RECOVERED


def test_an_unfinished_first_line_is_repaired_too(open_log: OpenLog, layout: Layout) -> None:
    log = open_log(file_max_bytes=1000)
    layout.audit_log.parent.mkdir(parents=True)
    layout.audit_log.write_bytes(b"{")
    log.append([DENIED])
    assert events(log) == [Event.AUDIT_RECOVERED, DENIED.event]
    while len(names(layout)) < 2:
        log.append([DENIED])
    layout.audit_log.write_bytes(b'{"seq"')
    log.append([DENIED])
    assert events(log)[-2:] == [Event.AUDIT_RECOVERED, DENIED.event]
    assert log.verify().whole


def test_a_writer_killed_in_a_rotation_leaves_the_chain_to_go_on_with(log: AuditLog, layout: Layout) -> None:
    tip = log.append([DENIED, DENIED])
    layout.audit_log.rename(layout.audit_log.with_name(f"audit.{tip.seq:015d}.jsonl"))
    assert log.append([GRANTED]).seq == 3
    assert log.verify().whole
    assert [record.seq for record in log.records()] == [1, 2, 3]


def test_lines_that_cannot_be_read_stop_nothing_and_are_told(log: AuditLog, layout: Layout) -> None:
    log.append([DENIED, DENIED])
    with layout.audit_log.open("ab") as stream:
        stream.write(b"\x00\x00\n{}\n")
    assert log.append([GRANTED]).seq == 6
    assert events(log)[-2:] == [Event.AUDIT_RECOVERED, GRANTED.event]
    report = log.verify()
    assert [(each.code, each.line) for each in report.problems] == [
        (Break.MALFORMED, 3),
        (Break.MALFORMED, 4),
    ]


def test_a_file_without_any_line_is_not_written_over(log: AuditLog, layout: Layout) -> None:
    layout.audit_log.parent.mkdir(parents=True)
    layout.audit_log.write_bytes(b"shopping list\n")
    with pytest.raises(DamagedError):
        log.append([DENIED])
    assert layout.audit_log.read_bytes() == b"shopping list\n"
    assert not log.verify().whole


def test_what_is_no_file_of_ours_is_refused(log: AuditLog, layout: Layout, tmp_path: Path) -> None:
    layout.audit_log.parent.mkdir(parents=True)
    layout.audit_log.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AccessError):
        log.append([DENIED])
    layout.audit_log.unlink()
    layout.audit_log.mkdir()
    with pytest.raises(AccessError):
        log.append([DENIED])
    with pytest.raises(AccessError):
        log.verify()


def test_a_writer_waits_no_longer_than_told(open_log: OpenLog, layout: Layout) -> None:
    log = open_log(lock_timeout_s=0)
    log.append([DENIED])
    with locked(layout.audit_log.with_name("audit.jsonl.lock"), timeout_s=1), pytest.raises(LockTimeoutError):
        log.append([DENIED])
    assert log.append([DENIED]).seq == 2


FULL = """
import resource, signal, sys
from pathlib import Path
from base.errors import AccessError
from base.layout import Layout
from gate.audit import AuditLog
from tests.fake_clock import FakeClock
from tests.gate.test_audit_chain import DENIED, WHO
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
layout = Layout(Path(sys.argv[1]))
size = layout.audit_log.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
try:
    AuditLog(layout, FakeClock(), WHO).append([DENIED] * 3)
except AccessError:
    sys.exit(7)
"""


@pytest.mark.parametrize("torn", [b"", b'{"seq":2,"torn'])
def test_a_full_disk_leaves_the_log_as_it_was(log: AuditLog, layout: Layout, torn: bytes) -> None:
    log.append([DENIED])
    with layout.audit_log.open("ab") as stream:
        stream.write(torn)
    before = layout.audit_log.read_bytes()
    done = subprocess.run([sys.executable, "-c", FULL, str(layout.root)], cwd=ROOT, check=False)
    assert done.returncode == 7
    assert layout.audit_log.read_bytes() == before
    log.append([DENIED])
    assert log.verify().whole


WRITE = """
import sys
from pathlib import Path
from base.layout import Layout
from base.clock import SystemClock
from dataclasses import replace
from gate.audit import AuditLog
from tests.gate.test_audit_chain import DENIED, WHO
log = AuditLog(Layout(Path(sys.argv[1])), SystemClock(), WHO, file_max_bytes=20_000, whole_files=2)
for number in range(100_000):
    subjects = [f"{sys.argv[2]} {number} {part}" for part in range(3)]
    group = [replace(DENIED, event="grant.granted", subject=each) for each in subjects]
    tip = log.append([*group, DENIED])
    print(number, tip, flush=True)
"""


def test_several_processes_killed_at_any_moment_leave_a_whole_chain(layout: Layout, log: AuditLog) -> None:
    rng = random.Random(20261130)
    acknowledged: dict[str, int] = {}
    for turn in range(4):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITE, str(layout.root), f"{turn}-{each}"],
                cwd=ROOT, stdout=subprocess.PIPE, text=True,
            )
            for each in range(3)
        ]  # fmt: skip
        for each in writers:
            assert each.stdout is not None
            each.stdout.readline()  # it writes
        time.sleep(rng.uniform(0.05, 0.4))
        for index, each in enumerate(writers):
            os.kill(each.pid, signal.SIGKILL)
            told = each.communicate()[0].splitlines()
            acknowledged[f"{turn}-{index}"] = int(told[-1].split()[0]) if told and told[-1] else 0
        log.append([])
        report = log.verify()
        assert report.whole, report.problems
    found = {record.entry.subject for record in log.records() if record.entry.event == Event.GRANT_GRANTED}
    for writer, last in acknowledged.items():
        wanted = {f"{writer} {number} {part}" for number in range(last + 1) for part in range(3)}
        assert wanted <= found, "what was acknowledged is there"
    files = names(layout)
    assert any(".thin." in name for name in files), "rotation and thinning took part"


def test_actors_are_kept(log: AuditLog) -> None:
    actor = Actor(uid=0, gid=0, pid=5, login="ann", sudo_user="ann")
    log.append([Entry(at=FakeClock().now(), event=Event.REPO_CREATED, actor=actor)])
    assert log.last(1)[0].entry.actor == actor
