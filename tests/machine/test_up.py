import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from base.clock import SystemClock
from base.errors import DamagedError, UnreachableError
from machine import up as module
from machine.process import Process, command_line
from machine.up import Supervisor, up


@dataclass(frozen=True, kw_only=True)
class FakeDaemon:
    """A daemon that is a sleeping process; `events` tells what was done to it, in order, over all fakes."""

    guid: str
    folder: Path = field(compare=False)
    events: list[str] = field(compare=False)
    version: int = 0
    bind_roots: tuple[str, ...] = field(compare=False, default=())
    broken: bool = False
    pids: list[int] = field(compare=False, default_factory=list)
    name: str = field(compare=False, default="a repo")

    def start(self) -> Process:
        if self.broken:
            self.events.append(f"broken {self.guid}")
            raise UnreachableError("cannot start", hint="mend it")
        process = Process.spawn(("sleep", "1000"), env=os.environ, log=self.folder / "log", cwd=self.folder)
        self.pids.append(process.pid)
        self.events.append(f"start {self.guid}{self.version}")
        return process

    def confine(self, process: Process) -> None:
        assert process.alive
        if self.bind_roots:
            self.events.append(f"confine {self.guid} {' '.join(self.bind_roots)}")
        if "/broken" in self.bind_roots:
            raise UnreachableError("cannot be confined")

    def ready(self, process: Process) -> bool:
        return process.alive

    def stop(self, process: Process | None = None) -> None:
        self.events.append(f"stop {self.guid}{self.version}")
        if process is not None:
            process.send(signal.SIGKILL)
            process.wait(10)
            process.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_S", "FIRST_PAUSE_S", "CONFINE_S", "_READY_POLL_S"):
        monkeypatch.setattr(module, name, 0.01)


class Machine:
    """A list of daemons that may change, and its supervisor."""

    def __init__(self, *daemons: FakeDaemon) -> None:
        self.daemons = list(daemons)
        self.error: DamagedError | None = None
        self.stop = asyncio.Event()
        self.supervisor = Supervisor(
            list_daemons=self._list,
            fingerprint=lambda: (
                tuple((each, each.name, each.bind_roots) for each in self.daemons),
                self.error,
            ),
            clock=SystemClock(),
        )

    def _list(self) -> list[FakeDaemon]:
        if self.error is not None:
            raise self.error
        return self.daemons


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition is about processes
            await asyncio.sleep(0.005)


async def test_the_gate_stops_first_then_the_daemons(tmp_path: Path) -> None:
    events: list[str] = []
    machine = Machine(*(FakeDaemon(guid=name, folder=tmp_path, events=events) for name in "ab"))

    async def serve() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("gate stopped")

    running = asyncio.create_task(up(machine.supervisor, serve, machine.stop))
    async with asyncio.timeout(10):
        await machine.supervisor.settled.wait()
    assert machine.supervisor.running == 2
    machine.stop.set()
    await running
    assert sorted(events[:2]) == ["start a0", "start b0"]
    assert events[2] == "gate stopped"
    assert sorted(events[3:]) == ["stop a0", "stop b0"]
    assert machine.supervisor.running == 0


async def test_a_gate_that_fails_takes_the_daemons_down_and_tells_why(tmp_path: Path) -> None:
    events: list[str] = []
    machine = Machine(FakeDaemon(guid="a", folder=tmp_path, events=events))

    async def serve() -> None:
        await machine.supervisor.settled.wait()
        raise DamagedError("no")

    with pytest.raises(DamagedError):
        await up(machine.supervisor, serve, machine.stop)
    assert events == ["start a0", "stop a0"]


async def test_a_list_that_fails_while_the_gate_does_is_not_reported_as_forgotten(tmp_path: Path) -> None:
    forgotten: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: forgotten.append(context))
    asked, failed = threading.Event(), threading.Event()

    def list_daemons() -> tuple[FakeDaemon, ...]:
        asked.set()
        failed.wait(5)
        raise DamagedError("cannot be read")

    async def serve() -> None:
        await asyncio.to_thread(asked.wait, 5)
        asyncio.get_running_loop().call_later(0.1, failed.set)
        raise DamagedError("no")

    supervisor = Supervisor(list_daemons=list_daemons, fingerprint=lambda: 1, clock=SystemClock())
    with pytest.raises(DamagedError, match="no"):
        await up(supervisor, serve, asyncio.Event())
    gc.collect()
    assert forgotten == []


async def run(machine: Machine) -> "asyncio.Task[None]":
    task = asyncio.create_task(machine.supervisor.run())
    async with asyncio.timeout(10):
        await machine.supervisor.settled.wait()
    return task


async def end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait((task,))


async def test_a_daemon_that_ends_is_started_again(tmp_path: Path) -> None:
    events: list[str] = []
    daemon = FakeDaemon(guid="a", folder=tmp_path, events=events)
    task = await run(machine := Machine(daemon))
    os.kill(daemon.pids[0], signal.SIGKILL)
    await until(lambda: len(daemon.pids) == 2 and machine.supervisor.running == 1)
    await end(task)
    assert events == ["start a0", "stop a0", "start a0", "stop a0"]


async def test_one_that_cannot_start_is_tried_again_and_does_not_disturb_others(tmp_path: Path) -> None:
    events: list[str] = []
    good = FakeDaemon(guid="a", folder=tmp_path, events=events)
    bad = FakeDaemon(guid="b", folder=tmp_path, events=events, broken=True)
    task = await run(machine := Machine(good, bad))
    assert machine.supervisor.running == 1
    await until(lambda: events.count("broken b") >= 3)
    await end(task)
    assert events.count("start a0") == 1


async def test_repos_that_come_and_go_are_followed(tmp_path: Path) -> None:
    events: list[str] = []
    first, second = (FakeDaemon(guid=name, folder=tmp_path, events=events) for name in "ab")
    task = await run(machine := Machine(first))
    machine.daemons = [first, second]
    await until(lambda: machine.supervisor.running == 2)
    machine.daemons = [second]
    await until(lambda: "stop a0" in events)
    machine.daemons = []
    await until(lambda: "stop b0" in events)
    await end(task)
    assert events == ["start a0", "start b0", "stop a0", "stop b0"]


async def test_a_daemon_whose_repo_got_another_name_runs_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []
    daemon = FakeDaemon(guid="a", folder=tmp_path, events=events, name="old")
    task = await run(machine := Machine(daemon))
    await until(lambda: machine.supervisor.running == 1)
    machine.daemons = [replace(daemon, name="new")]
    other = FakeDaemon(guid="b", folder=tmp_path, events=[])
    machine.daemons.append(other)
    await until(lambda: bool(other.events))
    assert events == ["start a0"]
    os.kill(daemon.pids[0], signal.SIGKILL)
    await until(lambda: events == ["start a0", "stop a0", "start a0"])
    await end(task)
    assert "daemon.ended repo=new" in caplog.text


async def test_a_changed_daemon_is_stopped_before_it_is_started_anew(tmp_path: Path) -> None:
    events: list[str] = []
    task = await run(machine := Machine(FakeDaemon(guid="a", folder=tmp_path, events=events)))
    machine.daemons = [FakeDaemon(guid="a", folder=tmp_path, events=events, version=1)]
    await until(lambda: "start a1" in events)
    await end(task)
    assert events == ["start a0", "stop a0", "start a1", "stop a1"]


async def test_new_bind_roots_need_no_restart(tmp_path: Path) -> None:
    events: list[str] = []
    machine = Machine(FakeDaemon(guid="a", folder=tmp_path, events=events, bind_roots=("/x",)))
    task = await run(machine)
    for roots in (("/x", "/y"), ("/broken",), ("/z",)):
        machine.daemons = [FakeDaemon(guid="a", folder=tmp_path, events=events, bind_roots=roots)]
        wanted = f"confine a {' '.join(roots)}"
        await until(lambda wanted=wanted: events[-1] == wanted)  # type: ignore[misc]
    assert [event for event in events if not event.startswith("confine")] == ["start a0"]
    await end(task)


async def test_a_list_that_cannot_be_read_leaves_everything_running(tmp_path: Path) -> None:
    events: list[str] = []
    task = await run(machine := Machine(FakeDaemon(guid="a", folder=tmp_path, events=events)))
    machine.error = DamagedError("unreadable")
    await asyncio.sleep(0.1)
    assert machine.supervisor.running == 1
    await end(task)
    assert events == ["start a0", "stop a0"]


async def test_nothing_to_keep_is_settled_at_once() -> None:
    await end(await run(Machine()))


async def test_a_daemon_whose_start_is_interrupted_is_stopped(tmp_path: Path) -> None:
    events: list[str] = []

    class Slow(FakeDaemon):
        def ready(self, process: Process) -> bool:
            return False

    daemon = Slow(guid="a", folder=tmp_path, events=events)
    machine = Machine(daemon)
    task = asyncio.create_task(machine.supervisor.run())
    await until(lambda: bool(daemon.pids))
    await end(task)
    assert events == ["start a0", "stop a0"]
    assert command_line(daemon.pids[0]) == ()
