from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cdi.core.names import QualifiedName
from cdi.directories import load_catalog
from gate.daemon import DaemonClient
from gate.projections import ASK_AGAIN_S, RESYNC_S, Projections
from grants.core.model import RepoGuid
from tests.gate.stub_upstream import StubUpstream, reply
from tests.gate.test_state import World
from tests.gate.test_state import world as world  # noqa: PLC0414 - a fixture
from tests.grants.cards import A, B, device, node, nvidia, spec


@pytest.fixture
async def daemons(short_dir: Path) -> AsyncIterator[dict[RepoGuid, DaemonClient]]:
    clients = {repo: DaemonClient(short_dir / f"{index}.sock") for index, repo in enumerate((A, B))}
    yield clients
    for client in clients.values():
        await client.close()


def resolvable(world: World, repo: RepoGuid) -> set[str]:
    return {str(name) for name in load_catalog([world.machine.layout.repo(repo).cdi_spec_dir]).devices}


def projections(world: World) -> Projections:
    return Projections(world.machine.layout, world.state, world.machine.probe, world.clock)


async def test_grants_reach_their_own_repo_only(world: World, daemons: dict[RepoGuid, DaemonClient]) -> None:
    follower = projections(world)
    await follower.follow(daemons)
    assert resolvable(world, A) == resolvable(world, B) == set()
    world.grant("nvidia.com/gpu=0", "rediacc.io/dri=renderD128")
    await follower.follow(daemons)
    assert resolvable(world, A) == {"nvidia.com/gpu=0", "rediacc.io/dri=renderD128"}
    assert resolvable(world, B) == set()
    world.store.revoke_all(A)
    await follower.follow(daemons)
    assert resolvable(world, A) == set()


async def test_what_is_up_to_date_is_not_touched(world: World, daemons: dict[RepoGuid, DaemonClient]) -> None:
    world.grant("nvidia.com/gpu=0")
    follower = projections(world)
    await follower.follow(daemons)
    directory = world.machine.layout.repo(A).cdi_spec_dir
    stray = directory / "stray.json"
    stray.write_text("{}")
    await follower.follow(daemons)
    assert stray.exists(), "nothing changed, so nothing was looked at"
    world.clock.forward(seconds=RESYNC_S)
    await follower.follow(daemons)
    assert not stray.exists()


async def test_expiry_and_new_specs_are_followed(world: World, daemons: dict[RepoGuid, DaemonClient]) -> None:
    world.grant("nvidia.com/gpu=0", expires_s=30)
    world.grant("nvidia.com/gpu=1")
    follower = projections(world)
    await follower.follow(daemons)
    assert resolvable(world, A) == {"nvidia.com/gpu=0", "nvidia.com/gpu=1"}
    world.clock.forward(seconds=30)
    await follower.follow(daemons)
    assert resolvable(world, A) == {"nvidia.com/gpu=1"}
    world.machine.write(nvidia=nvidia(1, 0))
    await follower.follow(daemons)
    assert resolvable(world, A) == set(), "the name means another card now"


async def test_a_damaged_store_leaves_projections_as_they_were(
    world: World, daemons: dict[RepoGuid, DaemonClient]
) -> None:
    world.grant("nvidia.com/gpu=0")
    follower = projections(world)
    await follower.follow(daemons)
    world.machine.layout.grants.write_bytes(b"{")
    world.clock.forward(seconds=RESYNC_S)
    await follower.follow(daemons)
    assert resolvable(world, A) == {"nvidia.com/gpu=0"}


async def test_the_daemons_library_decides_what_it_is_given(
    world: World, daemons: dict[RepoGuid, DaemonClient], short_dir: Path
) -> None:
    with_groups = device("gids", node("/dev/x", 1, 5))
    with_groups = {**with_groups, "containerEdits": {**with_groups["containerEdits"], "additionalGids": [44]}}  # type: ignore[dict-item]
    raw = spec("vendor.com/thing", [with_groups]).replace(b'"0.5.0"', b'"0.7.0"')
    world.machine.write(thing=raw)
    world.grant("vendor.com/thing=gids")
    follower = projections(world)
    async with StubUpstream(short_dir / "0.sock") as old:
        old.routes["GET /info"] = reply(b'{"ServerVersion": "25.0.3"}')
        await follower.follow(daemons)
        assert resolvable(world, A) == set()
    world.clock.forward(seconds=RESYNC_S)
    async with StubUpstream(short_dir / "0.sock") as new:
        new.routes["GET /info"] = reply(b'{"ServerVersion": "28.5.2"}')
        await follower.follow(daemons)
        assert resolvable(world, A) == {"vendor.com/thing=gids"}


async def test_a_daemon_that_comes_up_later_is_asked_again(
    world: World, daemons: dict[RepoGuid, DaemonClient], short_dir: Path
) -> None:
    world.grant("nvidia.com/gpu=0")
    follower = projections(world)
    await follower.follow(daemons)
    assert resolvable(world, A) == {"nvidia.com/gpu=0"}
    async with StubUpstream(short_dir / "0.sock") as daemon:
        daemon.routes["GET /info"] = reply(b'{"ServerVersion": "28.5.2"}')
        await follower.follow(daemons)
        assert not daemon.requests
        world.clock.forward(seconds=ASK_AGAIN_S)
        await follower.follow(daemons)
        assert [each.target for each in daemon.requests] == ["/info"]
        world.clock.forward(seconds=ASK_AGAIN_S)
        await follower.follow(daemons)
        assert len(daemon.requests) == 1, "it is known now"
    assert (
        QualifiedName.parse("nvidia.com/gpu=0")
        in load_catalog([world.machine.layout.repo(A).cdi_spec_dir]).devices
    )
