"""What the connections of one repo share, and what those of one gate do."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Protocol

from gate.limits import Limits
from gate.metrics import GateMetrics
from gate.plan import PlanCache
from gate.ports import Gatekeeper, Match, RepoEndpoint
from gate.stream import BufferPool, Stream
from gate.upstream import ResponseHeads, Upstream

_log = logging.getLogger(__name__)
_TICK_S = 1.0


class Watched(Protocol):
    """A connection with a time limit."""

    def expired(self) -> None:
        """The limit passed."""
        ...


class Tasks:
    """Every task of the gate has an owner: the server, and often one connection, which ends it."""

    __slots__ = ("_owned", "_tasks")

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._owned: dict[object, set[asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[object, object, None], *, owner: object) -> None:
        """Run `work`; an error that it lets out is logged."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(_run(work))
        self._tasks.add(task)
        owned = self._owned.setdefault(owner, set())
        owned.add(task)

        def done(ended: asyncio.Task[None]) -> None:
            self._tasks.discard(ended)
            owned.discard(ended)
            if not owned and self._owned.get(owner) is owned:
                del self._owned[owner]
            if not ended.cancelled() and ended.exception() is not None:
                _log.error("gate.task_failed", exc_info=ended.exception())

        task.add_done_callback(done)

    def cancel(self, owner: object) -> None:
        """End what `owner` started."""
        for task in tuple(self._owned.get(owner, ())):
            task.cancel()

    async def close(self) -> None:
        """End everything and wait for it."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Service:
    """What all connections of a gate share: buffer, caches, limits, tasks and the clock's ticks."""

    __slots__ = (
        "_deadlines",
        "_dying",
        "_timer",
        "_unread",
        "heads",
        "limits",
        "plans",
        "pool",
        "tasks",
    )

    def __init__(self, match: Match, limits: Limits) -> None:
        self.limits = limits
        self.pool = BufferPool()
        self.plans = PlanCache(match)
        self.heads = ResponseHeads()
        self.tasks = Tasks()
        self._deadlines: dict[Watched, float] = {}
        self._unread: set[Stream] = set()
        self._dying: dict[Upstream, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to tick, on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def stop(self) -> None:
        """End ticking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self, connection: Watched, seconds: float) -> None:
        """Call `connection.expired` in `seconds`, to a tick; a new limit replaces the old one."""
        self._deadlines[connection] = asyncio.get_running_loop().time() + seconds

    def unwatch(self, connection: Watched) -> None:
        """Forget the limit."""
        self._deadlines.pop(connection, None)

    def watch_hang_up(self, stream: Stream) -> None:
        """Abort a stream that is not read once its other side is gone for good: no event tells of that."""
        self._unread.add(stream)

    def abort_later(self, upstream: Upstream) -> None:
        """Give a closing connection time to send what it holds."""
        if upstream.transport is not None:
            self._dying[upstream] = asyncio.get_running_loop().time() + self.limits.linger_s

    def forget(self, connection: Stream) -> None:
        """A connection is gone."""
        self._deadlines.pop(connection, None)  # type: ignore[call-overload]
        self._unread.discard(connection)
        self.tasks.cancel(connection)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = loop.call_later(_TICK_S, self._tick)
        for connection in [one for one, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[connection]
            connection.expired()
        for stream in [one for one in self._unread if one.hung_up()]:
            self._unread.discard(stream)
            stream.abort()
        for upstream, deadline in tuple(self._dying.items()):
            if upstream.transport is None or deadline <= now:
                del self._dying[upstream]
                upstream.abort()


class Repo:
    """One repo as its connections see it."""

    __slots__ = (
        "connections",
        "draining",
        "endpoint",
        "gatekeeper",
        "held_bytes",
        "held_limit",
        "metrics",
        "service",
    )

    def __init__(self, endpoint: RepoEndpoint, gatekeeper: Gatekeeper, service: Service) -> None:
        self.endpoint = endpoint
        self.gatekeeper = gatekeeper
        self.service = service
        self.metrics = GateMetrics()
        self.connections: set[Stream] = set()
        self.draining = False
        self.held_bytes = 0
        self.held_limit = service.limits.held_bodies_bytes


async def _run(work: Coroutine[object, object, None]) -> None:
    await work
