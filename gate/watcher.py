"""Follows what starts and ends in one repo's daemon, and stops what holds a device without a live grant.

Containers also start without any request through the gate: by restart policies, when the daemon starts, on
the raw socket. The rule is in `gate.core.watch`; this asks the daemon, remembers, and stops. It never stands
in the way of a request. What it missed while it was not connected, or while the gate did not run, it makes up
for by looking at everything that runs whenever it connects; what it saw lawful outlives the gate in a file
below `/run`, which a reboot empties together with the containers.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from base.clock import Clock
from base.errors import MalformedError, NotFoundError, RdcError, UnreachableError
from base.files import read_bytes, write_atomic
from gate.core.repo import RepoConfig
from gate.core.watch import (
    Event,
    Lawful,
    Lines,
    Reason,
    Run,
    RunKey,
    Unlawful,
    encode_memory,
    judge,
    parse_event,
    parse_memory,
    read_run,
)
from gate.daemon import ANSWER_LIMIT_BYTES, DaemonClient
from gate.guard import Guard
from gate.state import MachineState, Snapshot
from grants.core.model import RepoGuid

_log = logging.getLogger(__name__)

STOP_GRACE_S = 5
RESYNC_S = 60.0
"""How often everything that runs is looked at again: daemons drop events for readers that are slow."""

CHECK_S = 30.0
"""How often the daemon's preconditions are looked at; `RETRY_S` while they are not met."""

RETRY_S = 2.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
_STARTS = frozenset({"start", "unpause"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A container that the watcher stopped: its full id, its name, what it held, and why it might not."""

    container: str
    name: str
    devices: tuple[str, ...]
    reason: Reason


OnStopped = Callable[[Stopped], None]
"""Told of every container that was stopped. Must not block and not raise."""


class Watcher:
    """Watches one repo.

    Args:
        repo: the repo; its policy says which runtimes are its own.
        daemon: the line to its daemon.
        guard: told when the stream to the daemon opens and ends.
        state: the grants.
        clock: tells which of them have ended.
        memory: the file that keeps what was seen lawful; its directory exists.
        on_stopped: told of what was stopped.
    """

    def __init__(
        self,
        repo: RepoConfig,
        daemon: DaemonClient,
        guard: Guard,
        state: MachineState,
        *,
        clock: Clock,
        memory: Path,
        on_stopped: OnStopped,
    ) -> None:
        self._repo = repo
        self._daemon = daemon
        self._guard = guard
        self._state = state
        self._clock = clock
        self._path = memory
        self._on_stopped = on_stopped
        self._memory: dict[RunKey, datetime | None] = {}
        self._runs: dict[str, Run] = {}
        self._plain: set[str] = set()
        self._told: set[RunKey] = set()
        self._stopping: set[str] = set()
        self._stale = False
        self._saving = asyncio.Lock()
        self._judged: Snapshot | None = None
        self._due: datetime | None = None
        self._wake = asyncio.Event()
        self._since_ns = 0

    @property
    def holders(self) -> tuple[Run, ...]:
        """The containers that run and hold a device, or are odd in another way, as last seen."""
        return tuple(self._runs.values())

    def configure(self, repo: RepoConfig) -> None:
        """The repo's file has changed."""
        if repo.policy != self._repo.policy:
            self._stale = True
            self._wake.set()
        self._repo = repo

    def notice(self, snapshot: Snapshot) -> None:
        """Called often: wakes the watcher when grants or specs have changed, or a grant has ended. Cheap."""
        if snapshot is not self._judged or (self._due is not None and self._clock.now() >= self._due):
            self._wake.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        self._memory = await asyncio.to_thread(self._read_memory)
        pause_s = FIRST_PAUSE_S
        while True:
            began_s = self._clock.monotonic_s()
            try:
                async with self._daemon.events(self._since_ns) as chunks:
                    await self._guard.followed()
                    await self._follow(chunks)
            except (UnreachableError, MalformedError) as exc:
                _log.debug("gate.watcher_waits repo=%s %s", self._repo.name, exc.message)
            except Exception:  # noqa: BLE001 - whatever it is, watching goes on
                _log.exception("gate.watcher_failed repo=%s", self._repo.name)
            finally:
                self._guard.lost()
                self._runs.clear()
            lasted = self._clock.monotonic_s() - began_s >= LONGEST_PAUSE_S
            pause_s = FIRST_PAUSE_S if lasted else min(2 * pause_s, LONGEST_PAUSE_S)
            self._guard.seen.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._guard.seen.wait()  # a request found the daemon before we did
            await asyncio.sleep(0)

    async def _follow(self, chunks: AsyncIterator[bytes]) -> None:
        """Follow one stream to its end.

        Raises:
            UnreachableError: the daemon does not answer any more.
        """
        _log.info("gate.watching repo=%s", self._repo.name)
        failure = ""
        try:
            async with asyncio.TaskGroup() as group:
                await self._resync(group)
                group.create_task(self._look_again(group))
                lines = Lines(ANSWER_LIMIT_BYTES)
                async for chunk in chunks:
                    for line in lines.feed(chunk):
                        if (event := parse_event(line)) is not None:
                            await self._happened(event, group)
                    if lines.dropped:
                        lines.dropped = 0
                        await self._resync(group)
                raise UnreachableError("the daemon has ended its stream")  # noqa: TRY301 - ends the group
        except* (UnreachableError, MalformedError) as failures:
            failure = str(failures)
        finally:
            self._stopping.clear()
        raise UnreachableError(failure)

    async def _happened(self, event: Event, group: asyncio.TaskGroup) -> None:
        self._since_ns = max(self._since_ns, event.at_ns)
        if event.kind == "daemon":
            await self._guard.check()  # its configuration was read anew
        elif event.action in _STARTS:
            if event.id not in self._plain:
                await self._look_at(event.id)
                await self._judge_all(group)
        else:
            self._forget(event.id, for_good=event.action == "destroy")

    async def _look_again(self, group: asyncio.TaskGroup) -> None:
        """Judge anew when grants change or end; check the daemon and what runs from time to time."""
        resync_s = self._clock.monotonic_s() + RESYNC_S
        while True:
            try:
                async with asyncio.timeout(RETRY_S if self._guard.barred else CHECK_S):
                    await self._wake.wait()
            except TimeoutError:
                await self._guard.check()
            else:
                await self._judge_all(group)
            if self._stale or self._clock.monotonic_s() >= resync_s:
                await self._resync(group)
                resync_s = self._clock.monotonic_s() + RESYNC_S

    async def _resync(self, group: asyncio.TaskGroup) -> None:
        """Look at everything that runs."""
        if self._stale:
            self._stale = False
            self._plain.clear()
        running = await self._daemon.running()
        for container in self._runs.keys() - set(running):
            del self._runs[container]
        self._plain.intersection_update(running)
        for container in running:
            if container not in self._plain:
                await self._look_at(container)
        await self._judge_all(group)

    async def _look_at(self, container: str) -> None:
        """Learn what a container that has started holds."""
        try:
            answer = await self._daemon.container(container)
            run = None if answer is None else read_run(answer, self._repo.policy)
        except MalformedError as exc:
            _log.error("gate.unreadable_container repo=%s %s %s", self._repo.name, container, exc.message)
            return
        if run is None:
            self._runs.pop(container, None)
        elif run.plain:
            self._plain.add(container)
        else:
            self._runs[container] = run
            if run.odd and run.key not in self._told:
                self._told.add(run.key)
                words = "; ".join(each.detail for each in run.odd)
                _log.warning("gate.odd_container repo=%s name=%s %s", self._repo.name, run.name, words)

    def _forget(self, container: str, *, for_good: bool) -> None:
        run = self._runs.pop(container, None)
        if run is not None:
            self._told.discard(run.key)
        if for_good:
            self._plain.discard(container)

    async def _judge_all(self, group: asyncio.TaskGroup) -> None:
        """Judge everything that holds something, by the grants of this moment; nothing is asked."""
        self._wake.clear()
        snapshot = await self._state.current()
        permits = await self._state.grants_of(RepoGuid(self._repo.guid))
        now = self._clock.now()
        self._judged = snapshot
        learned = False
        for run in self._runs.values():
            verdict = judge(run, permits, self._memory, now)
            if isinstance(verdict, Lawful):
                learned |= self._memory.get(run.key, run) != verdict.until
                self._memory[run.key] = verdict.until
            elif isinstance(verdict, Unlawful) and run.key.container not in self._stopping:
                self._stopping.add(run.key.container)
                group.create_task(self._stop(run, verdict.reason))
        ends = [self._memory.get(run.key) for run in self._runs.values()]
        self._due = min((end for end in ends if end is not None and end > now), default=None)
        if learned:
            await self._remember()

    async def _stop(self, run: Run, reason: Reason) -> None:
        name, container = self._repo.name, run.key.container
        _log.warning(
            "gate.stopping repo=%s container=%s name=%s rule=%s %s",
            name, container[:12], run.name, reason.rule.value, reason.detail,
        )  # fmt: skip
        try:
            with contextlib.suppress(UnreachableError):
                await self._daemon.stop(container, STOP_GRACE_S)
            if await self._runs_still(run):
                await self._daemon.kill(container)
                if await self._runs_still(run):
                    raise UnreachableError("the daemon does not end it")
        except RdcError as exc:
            _log.error("gate.stop_failed repo=%s container=%s %s", name, container[:12], exc.message)
            await asyncio.sleep(RETRY_S)
            self._wake.set()
        else:
            self._runs.pop(container, None)
            self._on_stopped(
                Stopped(
                    container=container, name=run.name, devices=tuple(map(str, run.devices)), reason=reason
                )
            )
        finally:
            self._stopping.discard(container)

    async def _runs_still(self, run: Run) -> bool:
        answer = await self._daemon.container(run.key.container)
        now = None if answer is None else read_run(answer, self._repo.policy)
        return now is not None and now.key == run.key

    async def _remember(self) -> None:
        """Keep the memory of what runs, and drop that of what has ended."""
        alive = {run.key for run in self._runs.values()}
        self._memory = {key: until for key, until in self._memory.items() if key in alive}
        async with self._saving:
            content = encode_memory(self._memory)
            try:
                await asyncio.to_thread(write_atomic, self._path, content, mode=0o600, durable=False)
            except RdcError as exc:
                _log.error("gate.memory_not_kept repo=%s %s", self._repo.name, exc.message)

    def _read_memory(self) -> dict[RunKey, datetime | None]:
        """What was seen lawful before the gate was restarted; nothing, when that cannot be read."""
        try:
            return dict(parse_memory(read_bytes(self._path)))
        except NotFoundError:
            return {}
        except RdcError as exc:
            _log.error("gate.memory_unreadable repo=%s %s", self._repo.name, exc.message)
            return {}
