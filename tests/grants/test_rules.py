"""Rules of granting and revoking, as tables and as properties."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grants.core import rules
from grants.core.broken import GrantRefusedError, GrantRule, NotGrantedError
from grants.core.machine import MachineView
from grants.core.model import GrantRequest, RepoGuid, Sharing
from grants.core.table import GrantTable
from tests.grants import cards
from tests.grants.cards import NAMES, NOW, A, B, C

S, X = Sharing.SHARED, Sharing.EXCLUSIVE
CARD_0 = f"nvidia.com/gpu={cards.uuid(0)}"


def ask(repo: RepoGuid, device: str, sharing: Sharing = S, **fields: object) -> GrantRequest:
    return GrantRequest(repo=repo, device=device, sharing=sharing, granted_by="root", **fields)  # type: ignore[arg-type]


def held(view: MachineView, *grants: tuple[RepoGuid, str, Sharing]) -> GrantTable:
    """A table with these grants, each made by itself."""
    table = GrantTable.empty()
    for repo, device, sharing in grants:
        table = rules.grant(table, [ask(repo, device, sharing)], view, NAMES, NOW).table
    return table


def codes(table: GrantTable, view: MachineView, *requests: GrantRequest) -> list[str]:
    """The broken rules of a request, in order; empty when it is granted."""
    try:
        rules.grant(table, requests, view, NAMES, NOW)
    except GrantRefusedError as exc:
        refusal = exc
    else:
        return []
    assert refusal.exit_code == 3
    assert all(each.detail and each.remedy for each in refusal.broken)
    return [each.rule.value for each in refusal.broken]


@pytest.mark.parametrize(
    ("others", "device", "sharing", "expected"),
    [
        ([], "nvidia.com/gpu=0", X, []),
        ([(B, "nvidia.com/gpu=0", S)], "nvidia.com/gpu=0", S, []),
        ([(B, "nvidia.com/gpu=0", S)], "nvidia.com/gpu=0", X, ["already-shared"]),
        ([(B, "nvidia.com/gpu=0", X)], "nvidia.com/gpu=0", S, ["already-exclusive"]),
        ([(B, "nvidia.com/gpu=0", X)], "nvidia.com/gpu=0", X, ["already-exclusive"]),
        # another name of the same card, in both directions
        ([(B, "nvidia.com/gpu=0", X)], CARD_0, S, ["overlaps-exclusive"]),
        ([(B, CARD_0, S)], "nvidia.com/gpu=0", X, ["overlaps-shared"]),
        ([(B, "nvidia.com/gpu=0", X)], "nvidia.com/gpu=all", S, ["overlaps-exclusive"]),
        ([(B, "nvidia.com/gpu=all", X)], "nvidia.com/gpu=1", S, ["overlaps-exclusive"]),
        ([(B, "nvidia.com/gpu=all", S)], "nvidia.com/gpu=1", X, ["overlaps-shared"]),
        # control nodes of the spec's own edits are common to all cards
        ([(B, "nvidia.com/gpu=0", X)], "nvidia.com/gpu=1", X, []),
        ([(B, "rediacc.io/dri=renderD128", X)], "rediacc.io/dri=renderD129", X, []),
        # each holder is told of
        (
            [(B, "nvidia.com/gpu=0", S), (C, CARD_0, S)],
            "nvidia.com/gpu=0",
            X,
            ["already-shared", "overlaps-shared"],
        ),
        ([(B, "nvidia.com/gpu=0", S), (C, "nvidia.com/gpu=0", S)], "nvidia.com/gpu=0", X, ["already-shared"]),
        # what the repo itself holds never stands in its way
        ([(A, "nvidia.com/gpu=0", X)], "nvidia.com/gpu=all", X, []),
        ([(A, "nvidia.com/gpu=0", X)], "nvidia.com/gpu=0", S, []),
        ([(A, "nvidia.com/gpu=0", S), (B, "nvidia.com/gpu=0", S)], "nvidia.com/gpu=0", X, ["already-shared"]),
    ],
)
def test_exclusive(
    machine: cards.Machine,
    others: Sequence[tuple[RepoGuid, str, Sharing]],
    device: str,
    sharing: Sharing,
    expected: list[str],
) -> None:
    view = machine.view()
    assert codes(held(view, *others), view, ask(A, device, sharing)) == expected


def test_mig_slice_and_its_parent_exclude_each_other(tmp_path: Path) -> None:
    view = cards.machine(tmp_path, nvidia=cards.nvidia(0, 1, mig_of=1)).view()
    slice_held = held(view, (B, "nvidia.com/gpu=1:0", X))
    assert codes(slice_held, view, ask(A, "nvidia.com/gpu=1")) == ["overlaps-exclusive"]
    assert codes(slice_held, view, ask(A, "nvidia.com/gpu=all")) == ["overlaps-exclusive"]
    assert codes(slice_held, view, ask(A, "nvidia.com/gpu=0", X)) == []
    parent_held = held(view, (B, "nvidia.com/gpu=1", X))
    assert codes(parent_held, view, ask(A, "nvidia.com/gpu=1:0")) == ["overlaps-exclusive"]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(A, "nvidia.com/gpu=7"), ["unknown-device"]),
        (ask(A, "nvidia.com/GPU=0"), ["unknown-device"]),
        (ask(A, "nvidia.com/gpu=ALL"), ["unknown-device"]),
        (ask(A, "gpu=0"), ["malformed-device"]),
        (ask(A, "0"), ["malformed-device"]),
        (ask(A, ""), ["malformed-device"]),
        (ask(A, " nvidia.com/gpu=0"), ["malformed-device"]),
        (ask(A, "nvidia.com/gpu=0:/dev/nvidia0"), ["malformed-device"]),
        (ask(RepoGuid("../a"), "nvidia.com/gpu=0"), ["malformed-repo"]),
        (ask(RepoGuid(""), "nvidia.com/gpu=0"), ["malformed-repo"]),
        (ask(A, "nvidia.com/gpu=0", expires_at=NOW), ["expiry-past"]),
        (ask(A, "nvidia.com/gpu=0", expires_at=NOW - timedelta(days=1)), ["expiry-past"]),
        (ask(A, "nvidia.com/gpu=0", expires_at=NOW + timedelta(milliseconds=900)), ["expiry-past"]),
        (ask(A, "nvidia.com/gpu=0", expires_at=NOW + timedelta(seconds=1)), []),
        (ask(A, "nvidia.com/gpu=0", vram_mb=0), ["vram-cap"]),
        (ask(A, "nvidia.com/gpu=0", vram_mb=-1), ["vram-cap"]),
        (ask(A, "nvidia.com/gpu=0", vram_mb=2**31), ["vram-cap"]),
        (ask(A, "nvidia.com/gpu=0", vram_mb=1), []),
        (ask(A, "nvidia.com/gpu=0", note="two\nlines"), ["malformed-text"]),
        (ask(A, "nvidia.com/gpu=0", note="\x1b[2J"), ["malformed-text"]),
        (ask(A, "nvidia.com/gpu=0", note="x" * 501), ["malformed-text"]),
        (ask(A, "nvidia.com/gpu=0", note="für Ana"), []),
        (
            ask(A, "nvidia.com/gpu=9", vram_mb=0, expires_at=NOW),
            ["expiry-past", "vram-cap", "unknown-device"],
        ),
    ],
)
def test_fields(machine: cards.Machine, request_: GrantRequest, expected: list[str]) -> None:
    assert codes(GrantTable.empty(), machine.view(), request_) == expected


def test_every_broken_rule_of_every_device_is_told_and_nothing_granted(machine: cards.Machine) -> None:
    view = machine.view()
    table = held(view, (B, "nvidia.com/gpu=0", X))
    requests = [ask(A, text) for text in ("nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=9", "gpu")]
    found = codes(table, view, *requests, ask(A, "nvidia.com/gpu=1"))
    assert found == ["already-exclusive", "unknown-device", "malformed-device", "duplicate-device"]


def test_messages_name_the_other_repo_and_give_commands(machine: cards.Machine) -> None:
    view = machine.view()
    table = held(view, (B, CARD_0, X))
    with pytest.raises(GrantRefusedError) as caught:
        rules.grant(table, [ask(A, "nvidia.com/gpu=0"), ask(A, "nvidia.com/gpu=3")], view, NAMES, NOW)
    assert "gpu-b" in caught.value.message
    assert "/dev/nvidia0" in caught.value.message
    assert f"rdc repo gpu revoke gpu-b --device {CARD_0}" in caught.value.hint
    assert "rdc repo gpu grant gpu-a --device nvidia.com/gpu=" in caught.value.hint
    assert caught.value.to_json()["code"] == GrantRule.OVERLAPS_EXCLUSIVE


def test_a_repo_without_a_name_is_told_by_its_guid(machine: cards.Machine) -> None:
    view = machine.view()
    with pytest.raises(GrantRefusedError) as caught:
        rules.grant(held(view, (B, "nvidia.com/gpu=0", X)), [ask(A, "nvidia.com/gpu=0")], view, {}, NOW)
    assert B in caught.value.message


def test_granting_again_replaces(machine: cards.Machine) -> None:
    view = machine.view()
    first = rules.grant(
        GrantTable.empty(), [ask(A, "nvidia.com/gpu=0", note="old", vram_mb=5)], view, NAMES, NOW
    ).table
    later = NOW + timedelta(hours=1)
    change = rules.grant(first, [ask(A, "nvidia.com/gpu=0", X, expires_at=later)], view, NAMES, NOW)
    (grant,) = change.table.of_repo(A)
    assert (grant.sharing, grant.expires_at, grant.note, grant.vram_mb) == (X, later, "", None)
    assert change.replaced == first.of_repo(A)
    assert len(change.table) == 1


def test_an_ended_grant_blocks_nobody_and_goes_with_the_next_write(machine: cards.Machine) -> None:
    view = machine.view()
    end = NOW + timedelta(hours=1)
    table = rules.grant(
        GrantTable.empty(), [ask(B, "nvidia.com/gpu=0", X, expires_at=end)], view, NAMES, NOW
    ).table
    just_before = end - timedelta(microseconds=1)
    with pytest.raises(GrantRefusedError):
        rules.grant(table, [ask(A, "nvidia.com/gpu=0")], view, NAMES, just_before)
    change = rules.grant(table, [ask(A, "nvidia.com/gpu=0", X)], view, NAMES, end)
    assert [grant.repo for grant in change.table] == [A]
    assert [grant.repo for grant in change.expired] == [B]


def test_a_drifted_grant_blocks_what_it_pinned_and_what_it_means_now(tmp_path: Path) -> None:
    machine = cards.machine(tmp_path, nvidia=cards.nvidia(0, 1, 2))
    table = held(machine.view(), (B, "nvidia.com/gpu=0", X))
    machine.write(nvidia=cards.nvidia(2, 1, 0))  # cards 0 and 2 have changed places
    view = machine.view()
    for card in (0, 2):
        assert codes(table, view, ask(A, f"nvidia.com/gpu={cards.uuid(card)}")) == ["overlaps-exclusive"]
    assert codes(table, view, ask(A, "nvidia.com/gpu=1", X)) == []
    change = rules.grant(table, [ask(B, "nvidia.com/gpu=0", X)], view, NAMES, NOW)
    assert len(change.warnings) == 1


def test_a_name_that_is_gone_still_blocks_what_it_pinned(tmp_path: Path) -> None:
    machine = cards.machine(tmp_path, dri=cards.dri(128))
    table = held(machine.view(), (B, "rediacc.io/dri=renderD128", X))
    machine.write(
        dri=cards.spec("rediacc.io/dri", [cards.device("x", cards.node("/dev/dri/renderD128", 226, 128))])
    )
    assert codes(table, machine.view(), ask(A, "rediacc.io/dri=x")) == ["overlaps-exclusive"]


def test_requests_of_one_transaction_are_judged_against_each_other(machine: cards.Machine) -> None:
    view = machine.view()
    found = codes(GrantTable.empty(), view, ask(A, "nvidia.com/gpu=0", X), ask(B, CARD_0))
    assert found == ["overlaps-exclusive"]


def test_revoke(machine: cards.Machine) -> None:
    view = machine.view()
    table = held(view, (A, "nvidia.com/gpu=0", S), (A, "nvidia.com/gpu=1", X), (B, "nvidia.com/gpu=0", S))
    change = rules.revoke(table, A, ["nvidia.com/gpu=1", "nvidia.com/gpu=1"], NAMES, NOW)
    assert [str(grant.device) for grant in change.revoked] == ["nvidia.com/gpu=1"]
    assert {(grant.repo, str(grant.device)) for grant in change.table} == {
        (A, "nvidia.com/gpu=0"),
        (B, "nvidia.com/gpu=0"),
    }
    with pytest.raises(NotGrantedError) as caught:
        rules.revoke(table, B, ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "junk"], NAMES, NOW)
    assert [each.rule for each in caught.value.broken] == [GrantRule.NOT_GRANTED] * 2
    assert caught.value.exit_code == 5


def test_revoke_all(machine: cards.Machine) -> None:
    view = machine.view()
    table = held(view, (A, "nvidia.com/gpu=0", S), (A, "nvidia.com/gpu=1", S), (B, "nvidia.com/gpu=0", S))
    change = rules.revoke_all(table, A, NOW)
    assert len(change.revoked) == 2
    assert change.table.repos == (B,)
    assert not rules.revoke_all(change.table, A, NOW).changes


_DEVICES = ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all", CARD_0, "nvidia.com/gpu=1:0"]
_STEPS = st.lists(st.tuples(st.sampled_from([A, B, C]), st.sampled_from(_DEVICES), st.sampled_from(Sharing)))


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> MachineView:
    return cards.machine(tmp_path_factory.mktemp("root"), nvidia=cards.nvidia(0, 1, mig_of=1)).view()


@given(steps=_STEPS)
def test_no_two_repos_ever_hold_a_card_that_one_holds_exclusively(
    view: MachineView, steps: list[tuple[RepoGuid, str, Sharing]]
) -> None:
    table = GrantTable.empty()
    for repo, device, sharing in steps:
        try:
            table = rules.grant(table, [ask(repo, device, sharing)], view, NAMES, NOW).table
        except GrantRefusedError:
            continue
    opened = {
        "nvidia.com/gpu=0": {0},
        "nvidia.com/gpu=1": {1},
        "nvidia.com/gpu=all": {0, 1},
        CARD_0: {0},
        "nvidia.com/gpu=1:0": {1},
    }
    for grant in table:
        if grant.sharing is X:
            for other in table:
                if other.repo != grant.repo:
                    assert not opened[str(grant.device)] & opened[str(other.device)]


@given(steps=_STEPS, revoked=st.integers(0, 20))
def test_revoking_never_makes_a_grant_impossible(
    view: MachineView, steps: list[tuple[RepoGuid, str, Sharing]], revoked: int
) -> None:
    table = GrantTable.empty()
    for repo, device, sharing in steps:
        try:
            table = rules.grant(table, [ask(repo, device, sharing)], view, NAMES, NOW).table
        except GrantRefusedError:
            continue
    grants = list(table)
    if not grants:
        return
    gone = grants[revoked % len(grants)]
    fewer = rules.revoke(table, gone.repo, [str(gone.device)], NAMES, NOW).table
    for device in _DEVICES:
        for sharing in Sharing:
            if not codes(table, view, ask(C, device, sharing)):
                assert not codes(fewer, view, ask(C, device, sharing))
