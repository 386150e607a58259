"""What has become of a grant."""

from datetime import timedelta
from pathlib import Path

import pytest

from grants.core import rules
from grants.core.machine import GrantState
from grants.core.model import Grant, GrantRequest, Sharing
from grants.core.table import GrantTable
from tests.grants import cards
from tests.grants.cards import NAMES, NOW, A

GPU_0, GPU_1 = "nvidia.com/gpu=0", "nvidia.com/gpu=1"


def granted(machine: cards.Machine, device: str, lasts_s: int | None = None) -> Grant:
    expires_at = None if lasts_s is None else NOW + timedelta(seconds=lasts_s)
    request = GrantRequest(repo=A, device=device, granted_by="root", expires_at=expires_at)
    return rules.grant(GrantTable.empty(), [request], machine.view(), NAMES, NOW).granted[0]


def state(machine: cards.Machine, grant: Grant, later_s: int = 0) -> GrantState:
    status = machine.view().status(grant, NOW + timedelta(seconds=later_s))
    assert status.live == (status.state is GrantState.LIVE) == (not status.reason)
    return status.state


@pytest.mark.parametrize(
    ("device", "after", "expected"),
    [
        (GPU_0, cards.nvidia(0, 1), "live"),
        (GPU_0, cards.nvidia(0), "live"),
        # another card has the name: order changed, card lost, card swapped
        (GPU_0, cards.nvidia(1, 0), "drifted"),
        (GPU_0, cards.nvidia(1), "drifted"),
        (GPU_0, cards.nvidia(5, 1), "drifted"),
        (GPU_1, cards.nvidia(0), "unresolvable"),
        # a UUID means its card wherever that is
        (f"nvidia.com/gpu={cards.uuid(0)}", cards.nvidia(1, 0), "live"),
        (f"nvidia.com/gpu={cards.uuid(0)}", cards.nvidia(1), "unresolvable"),
        # `all` is the cards that were there
        ("nvidia.com/gpu=all", cards.nvidia(1, 0), "live"),
        ("nvidia.com/gpu=all", cards.nvidia(0), "drifted"),
        ("nvidia.com/gpu=all", cards.nvidia(0, 1, 2), "drifted"),
        (GPU_0, b"junk", "unresolvable"),
    ],
)
def test_after_the_machine_changed(machine: cards.Machine, device: str, after: bytes, expected: str) -> None:
    grant = granted(machine, device)
    assert state(machine, grant) is GrantState.LIVE
    machine.write(nvidia=after)
    assert state(machine, grant).value == expected


def test_without_uuid_the_nodes_decide(tmp_path: Path) -> None:
    machine = cards.machine(tmp_path, dri=cards.dri(128))
    grant = granted(machine, "rediacc.io/dri=renderD128")
    moved = cards.device("renderD128", cards.node("/dev/dri/renderD128", 226, 129))
    machine.write(dri=cards.spec("rediacc.io/dri", [moved]))
    assert state(machine, grant) is GrantState.DRIFTED


def test_an_end_is_told_before_a_drift(machine: cards.Machine) -> None:
    grant = granted(machine, GPU_0, lasts_s=10)
    machine.write(nvidia=cards.nvidia(1, 0))
    assert state(machine, grant, later_s=9) is GrantState.DRIFTED
    assert state(machine, grant, later_s=10) is GrantState.EXPIRED


def test_near_names_and_the_file_at_fault_are_told(machine: cards.Machine) -> None:
    grant = granted(machine, GPU_1)
    machine.write(nvidia=cards.nvidia(0))
    status = machine.view().status(grant, NOW)
    assert GPU_0 in map(str, status.near)
    machine.write(nvidia=cards.nvidia(0, 1), twin=cards.nvidia(0, 1))
    status = machine.view().status(grant, NOW)
    assert status.state is GrantState.UNRESOLVABLE
    assert "twin.json" in status.reason


def test_a_node_that_was_missing_may_come_into_being(tmp_path: Path) -> None:
    device = {"name": "x", "containerEdits": {"deviceNodes": [{"path": "/dev/later"}]}}
    machine = cards.machine(tmp_path, later=cards.spec("v.io/cc", [device]))
    change = rules.grant(
        GrantTable.empty(),
        [GrantRequest(repo=A, device="v.io/cc=x", granted_by="root")],
        machine.view(),
        NAMES,
        NOW,
    )
    assert len(change.warnings) == 1
    (grant,) = change.granted
    assert grant.pin.nodes[0].major is None
    machine.write(later=cards.spec("v.io/cc", [cards.device("x", cards.node("/dev/later", 240, 7))]))
    assert state(machine, grant) is GrantState.LIVE
    machine.write(later=cards.spec("v.io/cc", [cards.device("x", cards.node("/dev/other", 240, 7))]))
    assert state(machine, grant) is GrantState.DRIFTED


def test_exclusive_without_a_node_of_its_own_is_warned_of(tmp_path: Path) -> None:
    device = {"name": "x", "containerEdits": {"env": ["A=b"]}}
    machine = cards.machine(tmp_path, env=cards.spec("v.io/cc", [device]))
    for sharing, expected in ((Sharing.SHARED, 0), (Sharing.EXCLUSIVE, 1)):
        request = GrantRequest(repo=A, device="v.io/cc=x", granted_by="root", sharing=sharing)
        change = rules.grant(GrantTable.empty(), [request], machine.view(), NAMES, NOW)
        assert len(change.warnings) == expected
