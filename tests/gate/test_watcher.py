import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gate.core.denial import Rule
from gate.core.repo import RepoConfig, RepoName, RepoPolicy
from gate.core.watch import RunKey, parse_memory
from gate.daemon import DaemonClient
from gate.guard import Guard
from gate.watcher import Stopped, Watcher
from tests.gate.docker_stub import DockerStub
from tests.gate.harness import until
from tests.gate.stub_upstream import StubUpstream, reply
from tests.gate.test_state import World
from tests.gate.test_state import world as world  # noqa: PLC0414 - a fixture
from tests.grants.cards import A

ONE, TWO = "1" * 64, "2" * 64
GPU0 = {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]}
DRI = {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["rediacc.io/dri=renderD128"]}]}
STARTED = "2026-11-30T12:00:00Z"


@dataclass
class Tower:
    """A watcher before a stub, which may be ended and begun again as a gate that was killed is."""

    world: World
    docker: DockerStub
    directory: Path
    stopped: list[Stopped] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        path = self.docker.stub.path
        self.repo = RepoConfig(name=RepoName("gpu-a"), guid=A, upstream=str(path))
        self.client = DaemonClient(path)
        self.guard = Guard(self.repo, self.client, path, self.directory / "cdi")
        self.watcher = Watcher(
            self.repo,
            self.client,
            self.guard,
            self.world.state,
            clock=self.world.clock,
            memory=self.directory / "runs.json",
            on_stopped=self.stopped.append,
        )
        self._task = asyncio.ensure_future(self.watcher.run())

    async def kill(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.client.close()

    async def follow(self) -> None:
        """What the gate's main loop does four times a second."""
        self.watcher.notice(await self.world.state.current())

    async def start(self, identity: str, host: dict[str, object], started_at: str = STARTED) -> None:
        self.docker.run(identity, host, started_at)
        await self.docker.tell("start", identity)

    def remembers(self, identity: str = ONE, started_at: str = STARTED) -> bool:
        path = self.directory / "runs.json"
        return path.exists() and RunKey(identity, started_at) in parse_memory(path.read_bytes())

    async def settle(self) -> None:
        """Wait until everything that was told so far was dealt with."""
        await self.start("e" * 64, {"Privileged": True})
        await until(lambda: any(each.container == "e" * 64 for each in self.stopped))
        self.stopped[:] = [each for each in self.stopped if each.container != "e" * 64]
        self.docker.stopped.remove("e" * 64)


@pytest.fixture
async def tower(world: World, short_dir: Path) -> AsyncIterator[Tower]:
    async with StubUpstream(short_dir / "d.sock") as stub:
        made = Tower(world, DockerStub(stub), short_dir)
        await until(lambda: made.guard.open)
        yield made
        await made.kill()


async def test_a_start_without_a_grant_is_stopped_and_told(tower: Tower) -> None:
    await tower.start(ONE, GPU0)
    await until(lambda: tower.stopped)
    (told,) = tower.stopped
    assert (told.container, told.name, told.devices) == (ONE, ONE, ("nvidia.com/gpu=0",))
    assert told.reason.rule is Rule.GRANT_MISSING
    assert tower.docker.stopped == [ONE]
    assert tower.watcher.holders == ()


async def test_a_start_under_a_grant_stays_also_after_a_revoke_and_a_new_gate(tower: Tower) -> None:
    tower.world.grant("nvidia.com/gpu=0")
    await tower.start(ONE, GPU0)
    await until(tower.remembers)
    tower.world.store.revoke_all(A)
    await tower.follow()
    await tower.settle()
    assert tower.stopped == []
    await tower.kill()
    tower.begin()
    await until(lambda: tower.guard.open)
    await tower.settle()
    assert tower.docker.stopped == []
    # Its next start is another matter.
    await tower.start(ONE, GPU0, "2026-11-30T12:34:56Z")
    await until(lambda: tower.docker.stopped == [ONE])


async def test_without_memory_a_holder_without_a_grant_is_stopped(tower: Tower) -> None:
    tower.world.grant("nvidia.com/gpu=0")
    await tower.start(ONE, GPU0)
    await until(tower.remembers)
    await tower.kill()
    tower.world.store.revoke_all(A)
    (tower.directory / "runs.json").write_text("damaged")
    tower.begin()
    await until(lambda: tower.docker.stopped == [ONE])


async def test_what_started_while_the_gate_was_down_is_caught_up_with(tower: Tower) -> None:
    await tower.kill()
    tower.docker.run(ONE, GPU0)
    tower.docker.run(TWO, {})
    tower.begin()
    await until(lambda: tower.stopped)
    assert tower.docker.stopped == [ONE]


async def test_the_end_of_a_grant_ends_its_holders(tower: Tower) -> None:
    tower.world.grant("nvidia.com/gpu=0", expires_s=60)
    tower.world.grant("rediacc.io/dri=renderD128")
    await tower.start(ONE, GPU0)
    await tower.start(TWO, DRI)
    await until(lambda: tower.remembers(ONE) and tower.remembers(TWO))
    tower.world.clock.forward(seconds=59)
    await tower.follow()
    await tower.settle()
    assert tower.stopped == []
    tower.world.clock.forward(seconds=1)
    await tower.follow()
    await until(lambda: tower.stopped)
    assert [(each.container, each.reason.rule) for each in tower.stopped] == [(ONE, Rule.GRANT_EXPIRED)]


async def test_an_end_that_came_while_nobody_watched_counts_though_the_grant_is_forgotten(
    tower: Tower,
) -> None:
    tower.world.grant("nvidia.com/gpu=0", expires_s=60)
    await tower.start(ONE, GPU0)
    await until(tower.remembers)
    await tower.kill()
    tower.world.store.revoke_all(A)
    tower.world.clock.forward(seconds=60)
    tower.begin()
    await until(lambda: tower.stopped)
    assert tower.stopped[0].reason.rule is Rule.GRANT_EXPIRED


async def test_a_longer_grant_is_known_to_be_longer(tower: Tower) -> None:
    tower.world.grant("nvidia.com/gpu=0", expires_s=60)
    await tower.start(ONE, GPU0)
    await until(tower.remembers)
    tower.world.grant("nvidia.com/gpu=0", expires_s=3600)
    await tower.follow()
    path = tower.directory / "runs.json"
    end = tower.world.clock.now().replace(hour=9)
    await until(lambda: parse_memory(path.read_bytes())[RunKey(ONE, STARTED)] == end)
    tower.world.clock.forward(seconds=60)
    await tower.follow()
    await tower.settle()
    assert tower.stopped == []


async def test_a_daemon_that_comes_back_is_followed_again(tower: Tower) -> None:
    await tower.docker.stub.stop()
    await until(lambda: not tower.guard.open)
    tower.docker.streams.clear()
    tower.docker.run(ONE, GPU0)
    await tower.docker.stub.start()
    await until(lambda: tower.docker.stopped == [ONE])
    await until(lambda: tower.guard.open)


async def test_one_that_does_not_stop_is_killed_and_one_that_cannot_be_is_tried_again(tower: Tower) -> None:
    tower.docker.stubborn = True
    await tower.start(ONE, GPU0)
    await until(lambda: tower.stopped)
    assert tower.docker.killed == [ONE]
    tower.docker.run(TWO, GPU0)
    failing = reply(b"{}", status="500 Internal Server Error")
    kill = tower.docker.stub.routes[f"POST /containers/{TWO}/kill"]
    tower.docker.stub.routes[f"POST /containers/{TWO}/kill"] = failing
    await tower.docker.tell("start", TWO)
    await until(lambda: tower.docker.asked(f"/containers/{TWO}/kill"))
    assert [each.container for each in tower.stopped] == [ONE]
    tower.docker.stub.routes[f"POST /containers/{TWO}/kill"] = kill
    await until(lambda: [each.container for each in tower.stopped] == [ONE, TWO])


async def test_a_damaged_store_stops_nothing_until_it_can_be_read(tower: Tower) -> None:
    tower.world.grant("nvidia.com/gpu=0")
    path = tower.world.machine.layout.grants
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    await tower.follow()
    await tower.start(ONE, GPU0)
    await tower.start(TWO, DRI)
    await tower.settle()
    assert tower.stopped == []
    path.write_bytes(content)
    await tower.follow()
    await until(lambda: tower.docker.stopped == [TWO])


async def test_events_that_cannot_be_read_and_containers_that_are_gone_do_no_harm(tower: Tower) -> None:
    await tower.docker.write(b"nonsense\n\n[]\n")
    await tower.docker.tell("start", "unknown")
    tower.docker.stub.routes["GET /containers/odd/json"] = reply(b'{"Id": 7}')
    await tower.docker.tell("start", "odd")
    await tower.start(ONE, GPU0)
    await until(lambda: tower.docker.stopped == [ONE])


async def test_what_ends_is_forgotten(tower: Tower) -> None:
    tower.world.grant("nvidia.com/gpu=0", "rediacc.io/dri=renderD128")
    await tower.start(ONE, GPU0)
    await until(tower.remembers)
    assert [run.key.container for run in tower.watcher.holders] == [ONE]
    del tower.docker.containers[ONE]
    await tower.docker.tell("die", ONE)
    await tower.docker.tell("destroy", ONE)
    await tower.start(TWO, DRI)
    await until(lambda: tower.remembers(TWO))
    assert not tower.remembers(ONE)
    assert [run.key.container for run in tower.watcher.holders] == [TWO]


async def test_a_plain_container_is_asked_about_once(tower: Tower) -> None:
    for _ in range(3):
        await tower.start(ONE, {})
    await tower.settle()
    assert tower.docker.asked(f"/containers/{ONE}/json") == 1
    tower.watcher.configure(replace(tower.repo, policy=RepoPolicy(runtimes=("runsc",))))
    await until(lambda: tower.docker.asked(f"/containers/{ONE}/json") == 2)


async def test_a_daemon_that_reads_its_configuration_anew_is_checked(tower: Tower) -> None:
    tower.docker.info["DefaultRuntime"] = "nvidia"
    await tower.docker.tell("reload", kind="daemon")
    await until(lambda: tower.guard.barred)
    assert not tower.guard.open
