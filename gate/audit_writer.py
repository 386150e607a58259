"""Writes the gate's events to the audit log in a thread of its own: many events, one wait for the disk.

Whoever records an event never waits, so no answer to a client does. While the log cannot be written the gate
goes on refusing: events are kept up to a limit and counted beyond it, `failure` says what is wrong, and the
first write that succeeds tells how many are missing.
"""

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from base.clock import Clock
from base.errors import RdcError
from base.layout import Layout
from gate.audit import AuditLog
from gate.core.audit_chain import Actor, AuditedRepo, Entry, Event, Tip
from gate.core.audit_flood import Flood
from gate.core.denial import Denial
from gate.core.repo import RepoConfig
from gate.ports import Peer

_log = logging.getLogger(__name__)

QUEUE_LIMIT = 8192
DENIALS_LIMIT = 6144
"""Denials leave room in the queue for what clients cannot cause at will."""

GROUP_LIMIT = 512
"""Most lines of one write; at `MAX_LINE_BYTES` each that is still below a file's size."""

RETRY_S = 1.0
LOCK_TIMEOUT_S = 10.0
"""How long another process may keep the log before that counts as a failure; also at the gate's end."""

_TICK_S = 1.0


class Appender(Protocol):
    """What `gate.audit.AuditLog` is to the writer."""

    def append(self, entries: Sequence[Entry]) -> Tip:
        """Write all or none; raises RdcError."""
        ...


class AuditWriter:
    """The gate's way into the audit log.

    Args:
        log: the log.
        clock: tells when things happened.
        actor: the gate itself, for what nobody asked for.
        retry_s: pause after a failed write.
    """

    def __init__(self, log: Appender, clock: Clock, actor: Actor, *, retry_s: float = RETRY_S) -> None:
        self._log = log
        self._clock = clock
        self._actor = actor
        self._retry_s = retry_s
        self._changed = threading.Condition()
        self._queue: deque[Entry] = deque()
        self._flood = Flood()
        self._lost = 0
        self._failure = ""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    @classmethod
    def of(cls, layout: Layout, clock: Clock) -> "AuditWriter":
        """The writer of the gate that this process is."""
        gate = Actor(uid=os.getuid(), gid=os.getgid(), pid=os.getpid())
        return cls(AuditLog(layout, clock, gate, lock_timeout_s=LOCK_TIMEOUT_S), clock, gate)

    @property
    def failure(self) -> str:
        """Why the log cannot be written now; empty when it can."""
        return self._failure

    def start(self) -> None:
        """Begin to write; the first line says that the gate has started."""
        self.record(self.own(Event.GATE_STARTED))
        self._thread.start()

    async def close(self) -> None:
        """Write what is left, once, and end. Counted denials are told now."""
        self.record(self.own(Event.GATE_STOPPED))
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def denied(self, repo: RepoConfig, peer: Peer, route: str, denial: Denial) -> None:
        """Record a refusal by rules. Does not block."""
        self.refused(repo, peer, route, denial.codes(), "; ".join(one.detail for one in denial.broken))

    def refused(self, repo: RepoConfig, peer: Peer, route: str, rules: Sequence[str], detail: str) -> None:
        """Record a refusal. Does not block."""
        self.record(
            Entry(
                at=self._clock.now(),
                event=Event.REQUEST_DENIED,
                actor=Actor(uid=peer.uid, gid=peer.gid, pid=peer.pid),
                repo=AuditedRepo(repo.name, repo.guid),
                subject=route,
                rules=tuple(rules),
                detail=detail,
            )
        )

    def own(
        self,
        event: Event,
        *,
        repo: RepoConfig | None = None,
        subject: str = "",
        rules: Sequence[str] = (),
        detail: str = "",
    ) -> Entry:
        """An event that the gate itself caused, such as a container that it stopped; `record` writes it."""
        return Entry(
            at=self._clock.now(),
            event=event,
            actor=self._actor,
            repo=None if repo is None else AuditedRepo(repo.name, repo.guid),
            subject=subject,
            rules=tuple(rules),
            detail=detail,
        )

    def record(self, entry: Entry) -> None:
        """Take an event to be written soon. Never blocks and never fails; callable from any thread."""
        with self._changed:
            denial = entry.event == Event.REQUEST_DENIED
            if denial and not self._flood.admit(entry, self._clock.monotonic_s()):
                return
            if len(self._queue) >= (DENIALS_LIMIT if denial else QUEUE_LIMIT):
                self._lost += entry.count
                return
            self._queue.append(entry)
            self._changed.notify()

    def _run(self) -> None:
        self._append(())  # repairs what a crash left, before anything else is written
        while True:
            closing = self._await_work()
            while self._write(*self._group(everything=closing)):
                pass
            if closing:
                if self._queue or self._lost:
                    _log.error("gate.audit_lost events=%d %s", len(self._queue) + self._lost, self._failure)
                return

    def _await_work(self) -> bool:
        """Wait until there is something to write, or the end has come; whether it has."""
        with self._changed:
            if self._failure and not self._closing:
                self._changed.wait_for(lambda: self._closing, self._retry_s)
            while not (self._queue or self._lost or self._closing):
                counting = self._flood.counting
                self._changed.wait(_TICK_S if counting else None)
                if counting:
                    break
            return self._closing

    def _group(self, *, everything: bool) -> tuple[tuple[Entry, ...], int]:
        """The next entries to write, and the number of lost ones to tell; both stay until that is done."""
        with self._changed:
            if len(self._queue) < QUEUE_LIMIT:
                self._queue.extend(self._flood.due(self._clock.monotonic_s(), everything=everything))
            group = tuple(self._queue[index] for index in range(min(GROUP_LIMIT, len(self._queue))))
            return group, self._lost

    def _write(self, group: tuple[Entry, ...], lost: int) -> bool:
        """Write a group; False when it could not be written or there was none."""
        words = f"{lost} events could not be recorded"
        told = (replace(self.own(Event.AUDIT_LOST, detail=words), count=lost),) if lost else ()
        if not (group or told) or not self._append((*group, *told)):
            return False
        with self._changed:
            for _ in group:
                self._queue.popleft()
            self._lost -= lost
            if self._failure:
                self._failure = ""
                _log.warning("gate.audit_resumed lost=%d", lost)
        return True

    def _append(self, entries: Sequence[Entry]) -> bool:
        try:
            self._log.append(entries)
        except Exception as exc:  # noqa: BLE001 - no surprise may end the thread: the log would end with it
            message = exc.message if isinstance(exc, RdcError) else f"unexpected {type(exc).__name__}: {exc}"
            if self._failure != message:
                self._failure = message
                _log.error("gate.audit_failed %s", message)
            return False
        return True
