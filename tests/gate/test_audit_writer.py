"""The gate's writer: never in the way, groups, failure and recovery."""

import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from base.errors import AccessError
from base.layout import Layout
from gate import audit_writer
from gate.audit import AuditLog
from gate.audit_writer import AuditWriter
from gate.core.audit_chain import Actor, Entry, Event, Tip
from gate.core.audit_flood import EACH
from gate.core.denial import Denial, Rule, broken
from gate.core.repo import RepoConfig, RepoName
from gate.ports import Peer
from tests.fake_clock import FakeClock
from tests.gate.harness import until

GATE = Actor(uid=0, gid=0, pid=1)
PEER = Peer(pid=4711, uid=1000, gid=100)
REPO = RepoConfig(name=RepoName("gpu-a"), guid="guid-a")
NO = Denial(status=403, broken=(broken(Rule.GPUS_FLAG, "--gpus all"), broken(Rule.PRIVILEGED, "privileged")))


class FakeLog:
    """Collects what is appended; can be broken, and held in the middle of a write."""

    def __init__(self) -> None:
        self.groups: list[list[Entry]] = []
        self.failure: Exception | None = None
        self.attempts = 0
        self.free = threading.Event()
        self.free.set()

    @property
    def entries(self) -> list[Entry]:
        return [entry for group in self.groups for entry in group]

    @property
    def events(self) -> list[str]:
        return [entry.event for entry in self.entries]

    def append(self, entries: Sequence[Entry]) -> Tip:
        self.attempts += 1
        assert self.free.wait(30)
        if self.failure is not None:
            raise self.failure
        if entries:
            self.groups.append(list(entries))
        return Tip.start()


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
async def writer(log: FakeLog) -> AsyncIterator[AuditWriter]:
    made = AuditWriter(log, FakeClock(), GATE, retry_s=0.01)
    made.start()
    yield made
    log.free.set()
    log.failure = None
    await made.close()


async def test_a_denial_says_who_asked_where_and_why(log: FakeLog, writer: AuditWriter) -> None:
    writer.denied(REPO, PEER, "container.create", NO)
    await until(lambda: Event.REQUEST_DENIED in log.events)
    entry = log.entries[-1]
    assert entry.actor == Actor(uid=1000, gid=100, pid=4711)
    assert entry.repo is not None
    assert (entry.repo.name, entry.repo.guid) == ("gpu-a", "guid-a")
    assert (entry.subject, entry.rules) == ("container.create", ("gpus-flag", "privileged"))
    assert entry.detail == "--gpus all; privileged"
    assert log.events[0] == Event.GATE_STARTED


async def test_many_events_are_one_write(log: FakeLog, writer: AuditWriter) -> None:
    await until(lambda: log.groups)
    log.free.clear()
    writer.record(writer.own(Event.CONTAINER_STOPPED, subject="first"))
    await until(lambda: log.attempts == 3)
    for number in range(50):
        writer.record(writer.own(Event.CONTAINER_STOPPED, repo=REPO, subject=str(number)))
    log.free.set()
    await until(lambda: len(log.entries) == 52)
    assert [len(group) for group in log.groups] == [1, 1, 50]
    assert [entry.subject for entry in log.groups[-1]] == [str(number) for number in range(50)]
    assert log.entries[-1].actor == GATE


async def test_a_flood_is_counted_and_told_at_the_end(log: FakeLog) -> None:
    writer = AuditWriter(log, FakeClock(), GATE)
    writer.start()
    for _ in range(EACH + 90):
        writer.denied(REPO, PEER, "container.create", NO)
    writer.record(writer.own(Event.CONTAINER_STOPPED))
    await writer.close()
    assert log.events.count(Event.REQUEST_DENIED) == EACH + 1
    assert sum(each.count for each in log.entries if each.event == Event.REQUEST_DENIED) == EACH + 90
    assert Event.CONTAINER_STOPPED in log.events
    assert Event.GATE_STOPPED in log.events


async def test_while_it_cannot_be_written_events_are_kept_and_then_written(
    log: FakeLog, writer: AuditWriter
) -> None:
    await until(lambda: log.groups)
    assert writer.failure == ""
    for failure in (AccessError("no space left"), ValueError("surprise")):
        log.failure = failure
        writer.denied(REPO, PEER, "container.create", NO)
        await until(lambda: writer.failure)
        assert str(failure) in writer.failure
        attempts = log.attempts
        await until(lambda before=attempts: log.attempts > before + 2)
        log.failure = None
        await until(lambda: not writer.failure)
    assert log.events.count(Event.REQUEST_DENIED) == 2
    assert Event.AUDIT_LOST not in log.events


async def test_what_does_not_fit_is_counted(
    log: FakeLog, writer: AuditWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_writer, "QUEUE_LIMIT", 20)
    monkeypatch.setattr(audit_writer, "DENIALS_LIMIT", 10)
    await until(lambda: log.groups)
    log.failure = AccessError("no space left")
    for number in range(15):
        writer.refused(REPO, PEER, f"route{number}", ["privileged"], "no")
    for number in range(15):
        writer.record(writer.own(Event.CONTAINER_STOPPED, subject=str(number)))
    await until(lambda: writer.failure)
    log.failure = None
    await until(lambda: Event.AUDIT_LOST in log.events)
    assert log.events.count(Event.REQUEST_DENIED) == 10
    assert log.events.count(Event.CONTAINER_STOPPED) == 10
    lost = [entry.count for entry in log.entries if entry.event == Event.AUDIT_LOST]
    assert sum(lost) == 10


async def test_nothing_is_written_twice_and_the_end_comes_also_when_writing_fails(log: FakeLog) -> None:
    writer = AuditWriter(log, FakeClock(), GATE, retry_s=0.01)
    log.failure = AccessError("no space left")
    writer.start()
    writer.denied(REPO, PEER, "container.create", NO)
    await until(lambda: log.attempts > 2)
    await writer.close()
    assert log.entries == []


async def test_with_a_real_log_a_restart_after_a_crash_repairs_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    clock = FakeClock()
    log = AuditLog(layout, clock, GATE)
    log.append([])
    layout.audit_log.write_bytes(b"torn")
    writer = AuditWriter(log, clock, GATE)
    writer.start()
    writer.denied(REPO, PEER, "container.create", NO)
    await writer.close()
    assert [record.entry.event for record in log.records()] == [
        Event.AUDIT_RECOVERED, Event.GATE_STARTED, Event.REQUEST_DENIED, Event.GATE_STOPPED,
    ]  # fmt: skip
    assert log.verify().whole
