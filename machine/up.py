"""`renet up`: the gate and the managed daemons of one root in the foreground, without systemd.

Daemons are started side by side, watched by pidfd, restarted with growing pauses when they end, and follow
the repo files as those come and go. On the way down the gate stops first, so that nobody asks a daemon that
is going away.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from base.clock import Clock
from base.errors import RdcError
from machine.process import Process

P = ParamSpec("P")
R = TypeVar("R")

LOG = logging.getLogger("machine.up")

POLL_S = 0.5
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
SETTLED_S = 60.0
"""A daemon that ran this long has earned a first, short pause again."""

READY_TIMEOUT_S = 60.0
"""How long a daemon may take from its start to its first answer."""

CONFINE_S = 2.0
"""How long a bind root that is new, or was made anew, may have to wait until it can be used."""

_READY_POLL_S = 0.1
_STARTS_AT_ONCE = 4
_THREADS = 16


class KeptDaemon(Protocol):
    """What `machine.daemon.ManagedDaemon` is to us; equal values mean that it need not be restarted."""

    @property
    def guid(self) -> str:
        """The repo's identity."""
        ...

    @property
    def name(self) -> str:
        """The repo's name, for the log."""
        ...

    def start(self) -> Process:
        """Start or adopt it; raises RdcError."""
        ...

    @property
    def bind_roots(self) -> tuple[str, ...]:
        """Where it must follow no link; no part of what makes two equal, as `confine` brings it about."""
        ...

    def confine(self, process: Process) -> None:
        """Let it follow no link below its bind roots as they are now; raises RdcError."""
        ...

    def ready(self, process: Process) -> bool:
        """Whether it answers; raises RdcError when it has ended."""
        ...

    def stop(self, process: Process | None = None) -> None:
        """Stop it and whatever it left; raises RdcError."""
        ...


class Keeper:
    """Keeps one daemon running until it is cancelled, then stops it."""

    def __init__(self, daemon: KeptDaemon, supervisor: "Supervisor") -> None:
        self.daemon = daemon
        self.settled = asyncio.Event()
        """Set once the first start has succeeded or failed."""
        self.up = False
        self._supervisor = supervisor
        self._process: Process | None = None
        self._problem = ""

    async def keep(self, *, after: "asyncio.Task[None] | None") -> None:
        """Start, watch, start again; never ends by itself.

        Args:
            after: the keeper of the same daemon with an older configuration, to be waited for.
        """
        if after is not None:
            await asyncio.wait((after,))
        clock, pause_s = self._supervisor.clock, FIRST_PAUSE_S
        try:
            while True:
                started_s = clock.monotonic_s()
                self.up = await self._start()
                self.settled.set()
                if self.up:
                    await self._watch()
                if clock.monotonic_s() - started_s > SETTLED_S:
                    pause_s = FIRST_PAUSE_S
                await self._stop()
                LOG.warning("daemon.restart repo=%s pause_s=%.0f", self.daemon.name, pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            self.settled.set()
            await self._stop()

    async def _start(self) -> bool:
        """Start the daemon and wait until it answers; False, with the reason in the log, when it does not."""
        async with self._supervisor.starting:
            try:
                await self._supervisor.in_thread(self._spawn)
                async with asyncio.timeout(READY_TIMEOUT_S):
                    await self._answered()
            except RdcError as exc:
                hint = f" ({exc.hint})" if exc.hint else ""
                LOG.error("daemon.failed repo=%s %s%s", self.daemon.name, exc.message, hint)  # noqa: TRY400
                return False
            except (OSError, TimeoutError) as exc:
                LOG.error("daemon.failed repo=%s %s: %s", self.daemon.name, type(exc).__name__, exc)  # noqa: TRY400
                return False
        LOG.info("daemon.ready repo=%s", self.daemon.name)
        await self._confine()
        return True

    async def _confine(self) -> None:
        """Never fails: the gate admits no bind below a root where links are followed, and says so."""
        process, problem = self._process, ""
        try:
            if process is not None:
                await self._supervisor.in_thread(self.daemon.confine, process)
        except (RdcError, OSError) as exc:
            problem = str(exc)
        if problem and problem != self._problem:
            LOG.error("daemon.unconfined repo=%s %s", self.daemon.name, problem)
        self._problem = problem

    async def _answered(self) -> None:
        # A socket that appears in another process can only be looked for again and again.
        while not await self._supervisor.in_thread(self._ready):  # noqa: ASYNC110
            await asyncio.sleep(_READY_POLL_S)

    def _spawn(self) -> None:
        self._process = self.daemon.start()

    def _ready(self) -> bool:
        return self._process is not None and self.daemon.ready(self._process)

    async def _watch(self) -> None:
        """Return when the process has ended."""
        process = self._process
        if process is None:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(process.descriptor, ended.set)
        try:
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CONFINE_S):
                        await ended.wait()
                if not ended.is_set():
                    await self._confine()
        finally:
            loop.remove_reader(process.descriptor)
        process.wait(0)
        LOG.error("daemon.ended repo=%s %s", self.daemon.name, process.exit_words)

    async def _stop(self) -> None:
        self.up = False
        process, self._process = self._process, None
        try:
            await self._supervisor.in_thread(self.daemon.stop, process)
        except (RdcError, OSError) as exc:
            LOG.error("daemon.unstoppable repo=%s %s", self.daemon.name, exc)  # noqa: TRY400 - words do


class Supervisor:
    """Keeps every managed daemon of a root.

    Args:
        list_daemons: the daemons that should run now; may raise RdcError, then the last list stays in force.
        fingerprint: changes whenever the list may have.
        clock: for pauses.
    """

    def __init__(
        self,
        *,
        list_daemons: Callable[[], Sequence[KeptDaemon]],
        fingerprint: Callable[[], Hashable],
        clock: Clock,
    ) -> None:
        self.clock = clock
        self.starting = asyncio.Semaphore(_STARTS_AT_ONCE)
        self.settled = asyncio.Event()
        """Set once every daemon of the first list has been started or has failed to."""
        self._list_daemons = list_daemons
        self._fingerprint = fingerprint
        self._keepers: dict[str, tuple[Keeper, asyncio.Task[None]]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        # Threads of our own: starts and stops take long, and must not keep the gate from the loop's.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="daemons")

    @property
    def running(self) -> int:
        """How many daemons answer."""
        return sum(keeper.up for keeper, _ in self._keepers.values())

    async def in_thread(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run something that blocks.

        A cancellation is passed on when the function has returned: a half-started daemon cannot be stopped.
        """
        work = functools.partial(function, *args, **kwargs)
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait((future,))
            future.exception()  # looked at: asyncio would report it as never retrieved, traceback and all
            raise

    async def run(self) -> None:
        """Follow the list until cancelled; every daemon has stopped when this returns."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._follow(group)
        finally:
            self._threads.shutdown()

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        seen: Hashable = object()
        while True:
            now = await self.in_thread(self._fingerprint)
            if now != seen:
                await self._reconcile(group)
                seen = now
            if not self.settled.is_set() and all(
                keeper.settled.is_set() for keeper, _ in self._keepers.values()
            ):
                self.settled.set()
            await asyncio.sleep(POLL_S if self.settled.is_set() else _READY_POLL_S)

    async def _reconcile(self, group: asyncio.TaskGroup) -> None:
        try:
            wanted = {daemon.guid: daemon for daemon in await self.in_thread(self._list_daemons)}
        except RdcError as exc:
            LOG.error("daemon.list %s", exc.message)  # noqa: TRY400 - words do
            return
        for guid, (keeper, task) in list(self._keepers.items()):
            if wanted.get(guid) != keeper.daemon:
                task.cancel()
                self._leaving[guid] = task
                del self._keepers[guid]
            else:
                keeper.daemon = wanted[guid]  # its repo may have got another name or other bind roots
        for guid, daemon in wanted.items():
            if guid not in self._keepers:
                keeper = Keeper(daemon, self)
                keep = keeper.keep(after=self._leaving.pop(guid, None))
                self._keepers[guid] = (keeper, group.create_task(keep, name=f"daemon {daemon.name}"))


async def up(supervisor: Supervisor, serve: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    """Run gate and daemons until `stop` is set or the gate ends; then first the gate stops, then the daemons.

    Raises:
        RdcError: the gate could not be served.
    """
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(supervisor.run(), name="daemons")
        serving = group.create_task(_contained(serve), name="gate")
        stopping = group.create_task(stop.wait(), name="stop")
        await asyncio.wait((serving, stopping, keeping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        serving.cancel()
        await asyncio.wait((serving,))
        failure = None if serving.cancelled() else serving.result()
        keeping.cancel()
    if failure is not None:
        raise failure


async def _contained(serve: Callable[[], Awaitable[None]]) -> Exception | None:
    """The gate's failure as a value: as an exception it would cancel the daemons before we could."""
    try:
        await serve()
    except Exception as exc:  # noqa: BLE001 - raised again by `up`
        return exc
    return None
