"""Granting anew, with the terms they had, what names have come to mean. Pure.

Source: design section 6. A drifted grant is refused until an operator has looked at it. All that is renewed
together is first taken out of the table: cards that changed places between two repos would otherwise each
be held by the other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from base.errors import RefusedError
from grants.core import rules
from grants.core.broken import BrokenRule, GrantRefusedError, GrantRule, NotGrantedError
from grants.core.machine import GrantState, MachineView
from grants.core.model import Grant, GrantRequest, RepoGuid
from grants.core.table import GrantTable


class ChangedMeanwhileError(RefusedError):
    """What would be renewed is not what was confirmed; nothing was changed."""

    code = "changed"

    def __init__(self) -> None:
        super().__init__(
            "the machine or its grants have changed since they were shown", hint="look at it again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Which grants to look at.

    Args:
        repo: whose; None for every repo's.
        devices: which of them, as written; none for all that have drifted. One that still means what it meant
            is left as it is.
        granted_by: who knows what he does.
    """

    repo: RepoGuid | None
    devices: tuple[str, ...] = ()
    granted_by: str


def regrant(
    table: GrantTable, renewal: Renewal, machine: MachineView, repos: Mapping[RepoGuid, str], now: datetime
) -> rules.Change:
    """The table with drifted grants pinned to what their names mean now.

    Args:
        table: what is granted.
        renewal: what is asked for.
        machine: what the names mean.
        repos: names for messages.
        now: the instant of the grant.

    Returns:
        The change: `replaced` are the drifted grants, `granted` their successors in the same order.

    Raises:
        NotGrantedError: no such grant is held.
        GrantRefusedError: a named grant has expired or means nothing, or a new meaning breaks a rule.
    """
    stale = _stale(_named(table, renewal, repos), renewal, machine, repos, now)
    left = table
    for each in stale:
        left = left.without(each.repo, each.device)
    change = rules.grant(left, [_again(each, renewal.granted_by) for each in stale], machine, repos, now)
    return replace(change, replaced=stale)


def require_confirmed(change: rules.Change, confirmed: Sequence[Grant]) -> None:
    """See that the change grants the very hardware that an operator was shown.

    Raises:
        ChangedMeanwhileError: it does not.
    """
    if {(each.repo, each.device, each.pin) for each in change.granted} != {
        (each.repo, each.device, each.pin) for each in confirmed
    }:
        raise ChangedMeanwhileError


def _named(table: GrantTable, renewal: Renewal, repos: Mapping[RepoGuid, str]) -> tuple[Grant, ...]:
    held = tuple(table) if renewal.repo is None else table.of_repo(renewal.repo)
    if not renewal.devices:
        return held
    missing = dict.fromkeys(renewal.devices).keys() - {str(each.device) for each in held}
    if missing:
        holder = "any repo" if renewal.repo is None else f"repo {repos.get(renewal.repo, renewal.repo)}"
        raise NotGrantedError(
            [
                BrokenRule(
                    rule=GrantRule.NOT_GRANTED,
                    device=text,
                    detail=f"device {text} is not granted to {holder}",
                    remedy="'rdc repo gpu list' shows what is granted",
                )
                for text in sorted(missing)
            ]
        )
    return tuple(each for each in held if str(each.device) in renewal.devices)


def _stale(
    grants: Iterable[Grant],
    renewal: Renewal,
    machine: MachineView,
    repos: Mapping[RepoGuid, str],
    now: datetime,
) -> tuple[Grant, ...]:
    """Those that have drifted; one that was named and cannot be renewed is told."""
    states = [(each, machine.status(each, now)) for each in grants]
    useless = [(each, status) for each, status in states if status.state in _NOT_RENEWED]
    if renewal.devices and useless:
        raise GrantRefusedError(
            [
                BrokenRule(
                    rule=_NOT_RENEWED[status.state],
                    device=str(each.device),
                    detail=f"device {each.device} of repo {repos.get(each.repo, each.repo)}: {status.reason}",
                    remedy="'rdc repo gpu revoke' takes it away, 'rdc repo gpu grant' grants it on new terms",
                )
                for each, status in useless
            ]
        )
    return tuple(each for each, status in states if status.state is GrantState.DRIFTED)


_NOT_RENEWED = {
    GrantState.EXPIRED: GrantRule.EXPIRY_PAST,
    GrantState.UNRESOLVABLE: GrantRule.UNKNOWN_DEVICE,
}


def _again(grant: Grant, granted_by: str) -> GrantRequest:
    return GrantRequest(
        repo=grant.repo,
        device=str(grant.device),
        sharing=grant.sharing,
        isolation=grant.isolation,
        vram_mb=grant.vram_mb,
        expires_at=grant.expires_at,
        granted_by=granted_by,
        note=grant.note,
    )
