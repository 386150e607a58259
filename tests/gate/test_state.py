import dataclasses
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from base.errors import RdcError
from cdi.core.names import QualifiedName
from gate.core.policy import Granted, NotGranted, Unusable
from gate.state import MachineState
from grants.core.model import GrantRequest
from grants.store import GrantStore
from tests.grants.cards import NAMES, NOW, A, B, Machine, StillClock, machine, nvidia

ZERO, ONE = QualifiedName.parse("nvidia.com/gpu=0"), QualifiedName.parse("nvidia.com/gpu=1")


@dataclasses.dataclass
class World:
    machine: Machine
    clock: StillClock
    store: GrantStore
    state: MachineState

    def grant(self, *devices: str, expires_s: int | None = None) -> None:
        end = None if expires_s is None else self.clock.now() + timedelta(seconds=expires_s)
        requests = [GrantRequest(repo=A, device=each, granted_by="t", expires_at=end) for each in devices]
        self.store.grant(
            requests, load_catalog=self.machine.catalog, probe=self.machine.probe, repo_names=NAMES
        )

    async def status(self, device: QualifiedName) -> Granted | NotGranted:
        return (await self.state.grants_of(A)).status(device)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = machine(tmp_path)
    clock = StillClock(NOW)
    store = GrantStore(made.layout, clock)
    state = MachineState(store, [made.layout.cdi_spec_dir], made.probe, clock)
    return World(made, clock, store, state)


async def test_a_grant_counts_for_the_next_question_and_a_revoke_too(world: World) -> None:
    assert await world.status(ZERO) == NotGranted(reason=Unusable.MISSING)
    world.grant("nvidia.com/gpu=0")
    assert await world.status(ZERO) == Granted()
    assert await world.status(ONE) == NotGranted(reason=Unusable.MISSING)
    assert (await world.state.grants_of(A)).names() == (ZERO,)
    assert (await world.state.grants_of(B)).names() == ()
    world.store.revoke(A, ["nvidia.com/gpu=0"], repo_names=NAMES)
    assert await world.status(ZERO) == NotGranted(reason=Unusable.MISSING)


async def test_what_did_not_change_is_not_read_again(world: World) -> None:
    world.grant("nvidia.com/gpu=0")
    first = await world.state.current()
    assert await world.state.current() is first
    assert world.state.latest() is first
    world.grant("nvidia.com/gpu=1")
    assert world.state.latest().table.get(A, ONE) is not None
    assert await world.state.current() is not first


async def test_time_and_specs_end_a_grant(world: World) -> None:
    world.grant("nvidia.com/gpu=0", expires_s=60)
    world.grant("nvidia.com/gpu=1")
    world.clock.forward(seconds=59)
    assert await world.status(ZERO) == Granted()
    world.clock.forward(seconds=1)
    expired = await world.status(ZERO)
    assert isinstance(expired, NotGranted)
    assert expired.reason is Unusable.EXPIRED
    world.machine.write(nvidia=nvidia(1, 0))
    drifted = await world.status(ONE)
    assert isinstance(drifted, NotGranted)
    assert drifted.reason is Unusable.DRIFTED
    assert drifted.detail
    world.machine.write(nvidia=nvidia(1))
    gone = await world.status(ONE)
    assert isinstance(gone, NotGranted)
    assert gone.reason is Unusable.OTHER
    assert (await world.state.grants_of(A)).names() == ()


def damages(content: bytes) -> Sequence[bytes]:
    newer = re.sub(rb'"schema_version": ?1', b'"schema_version": 99', content, count=1)
    assert newer != content
    return (content[: len(content) // 2], b"", b"{}", newer)


async def test_a_store_that_cannot_be_trusted_makes_every_device_unusable_until_it_is_mended(
    world: World,
) -> None:
    world.grant("nvidia.com/gpu=0")
    path = world.machine.layout.grants
    content = path.read_bytes()
    for damaged in damages(content):
        path.write_bytes(damaged)
        found = await world.status(ZERO)
        assert isinstance(found, NotGranted)
        assert found.reason is Unusable.OTHER
        assert str(path) in found.detail
        assert world.state.failure
        with pytest.raises(RdcError):
            world.state.latest()
    path.write_bytes(content)
    assert await world.status(ZERO) == Granted()
    assert not world.state.failure
