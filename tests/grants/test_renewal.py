"""Drifted grants are renewed knowingly, on the terms they had."""

from datetime import timedelta
from pathlib import Path

import pytest

from grants.core import rules
from grants.core.broken import GrantRefusedError, NotGrantedError
from grants.core.machine import MachineView
from grants.core.model import GrantRequest, Isolation, RepoGuid, Sharing
from grants.core.renewal import ChangedMeanwhileError, Renewal, regrant, require_confirmed
from grants.core.rules import Change
from grants.core.table import GrantTable
from tests.grants import cards
from tests.grants.cards import NAMES, NOW, A, B, C

LATER = NOW + timedelta(minutes=5)
FIRST, SECOND = "nvidia.com/gpu=0", "nvidia.com/gpu=1"


def granted(table: GrantTable, view: MachineView, repo: RepoGuid, device: str, **terms: object) -> GrantTable:
    request = GrantRequest(repo=repo, device=device, granted_by="root", **terms)  # type: ignore[arg-type]
    return rules.grant(table, [request], view, NAMES, NOW).table


def renewed(table: GrantTable, view: MachineView, repo: RepoGuid | None, *devices: str) -> Change:
    renewal = Renewal(repo=repo, devices=devices, granted_by="ada")
    return regrant(table, renewal, view, NAMES, LATER)


def swapped(machine: cards.Machine) -> MachineView:
    """The machine after its two cards changed places."""
    machine.write(nvidia=cards.nvidia(1, 0))
    return machine.view()


def test_the_terms_stay_and_the_meaning_is_the_new_one(machine: cards.Machine) -> None:
    until = NOW + timedelta(hours=8)
    table = granted(
        GrantTable.empty(), machine.view(), A, FIRST,
        sharing=Sharing.EXCLUSIVE, isolation=Isolation.MPS, vram_mb=4096, expires_at=until, note="run 12",
    )  # fmt: skip
    change = renewed(table, swapped(machine), A)
    (old,), (new,) = change.replaced, change.granted
    assert (old.pin.uuids, new.pin.uuids) == ((cards.uuid(0),), (cards.uuid(1),))
    assert (new.sharing, new.isolation, new.vram_mb, new.expires_at, new.note) == (
        Sharing.EXCLUSIVE, Isolation.MPS, 4096, until, "run 12",
    )  # fmt: skip
    assert (new.granted_by, new.granted_at) == ("ada", LATER)
    assert tuple(change.table) == (new,)


def test_what_still_means_the_same_is_left_alone(machine: cards.Machine) -> None:
    table = granted(GrantTable.empty(), machine.view(), A, FIRST)
    table = granted(table, machine.view(), A, f"nvidia.com/gpu={cards.uuid(0)}")
    assert not renewed(table, machine.view(), A).changes
    assert not renewed(table, machine.view(), A, FIRST).changes
    change = renewed(table, swapped(machine), A)
    assert [str(each.device) for each in change.granted] == [FIRST]
    assert len(change.table) == 2


def test_only_what_was_named_is_renewed(machine: cards.Machine) -> None:
    table = granted(GrantTable.empty(), machine.view(), A, FIRST)
    table = granted(table, machine.view(), A, SECOND)
    change = renewed(table, swapped(machine), A, SECOND)
    assert [str(each.device) for each in change.granted] == [SECOND]


def test_cards_that_changed_places_between_two_repos(machine: cards.Machine) -> None:
    """Each by itself is the other's; together they can be renewed."""
    table = granted(GrantTable.empty(), machine.view(), A, FIRST, sharing=Sharing.EXCLUSIVE)
    table = granted(table, machine.view(), B, SECOND, sharing=Sharing.EXCLUSIVE)
    view = swapped(machine)
    for repo in (A, B):
        with pytest.raises(GrantRefusedError) as refused:
            renewed(table, view, repo)
        assert [each.rule.value for each in refused.value.broken] == ["overlaps-exclusive"]
    change = renewed(table, view, None)
    assert [(each.repo, each.pin.uuids) for each in change.granted] == [
        (A, (cards.uuid(1),)), (B, (cards.uuid(0),)),
    ]  # fmt: skip


def test_a_new_meaning_that_somebody_else_holds_is_refused(machine: cards.Machine) -> None:
    table = granted(GrantTable.empty(), machine.view(), A, FIRST, sharing=Sharing.EXCLUSIVE)
    table = granted(table, machine.view(), C, f"nvidia.com/gpu={cards.uuid(1)}", sharing=Sharing.EXCLUSIVE)
    with pytest.raises(GrantRefusedError) as refused:
        renewed(table, swapped(machine), None)
    assert "gpu-c" in refused.value.message


def test_what_cannot_be_renewed_is_told_when_it_is_named(machine: cards.Machine) -> None:
    table = granted(GrantTable.empty(), machine.view(), A, FIRST, expires_at=NOW + timedelta(minutes=1))
    table = granted(table, machine.view(), A, SECOND)
    machine.write(nvidia=cards.nvidia(7))
    for device, code in ((FIRST, "expiry-past"), (SECOND, "unknown-device")):
        with pytest.raises(GrantRefusedError) as refused:
            renewed(table, machine.view(), A, device)
        assert [each.rule.value for each in refused.value.broken] == [code]
    change = renewed(table, machine.view(), A)
    assert change.granted == ()
    for repo, holder in ((A, "gpu-a"), (None, "any repo"), (B, "gpu-b")):
        with pytest.raises(NotGrantedError) as unknown:
            renewed(table, machine.view(), repo, "nvidia.com/gpu=5")
        assert holder in unknown.value.message


def test_what_was_confirmed_is_what_is_granted(tmp_path: Path) -> None:
    machine = cards.machine(tmp_path, nvidia=cards.nvidia(0, 1))
    table = granted(GrantTable.empty(), machine.view(), A, FIRST)
    shown = renewed(table, swapped(machine), A)
    require_confirmed(renewed(table, swapped(machine), A), shown.granted)
    machine.write(nvidia=cards.nvidia(5, 0))
    with pytest.raises(ChangedMeanwhileError):
        require_confirmed(renewed(table, machine.view(), A), shown.granted)
    with pytest.raises(ChangedMeanwhileError):
        require_confirmed(shown, ())
