"""Who may be granted what. Pure.

Source: design section 6. A request is one transaction: either every device of it is granted, or none and
every broken rule is told at once, so that an operator mends them in one go.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from base.errors import MalformedError
from cdi.core.names import QualifiedName
from cdi.core.pin import Pin
from grants.core.broken import BrokenRule, GrantRefusedError, GrantRule, NotGrantedError
from grants.core.conflict import same_hardware
from grants.core.machine import MachineView, drifted
from grants.core.model import (
    GRANTED_BY_MAX_CHARS,
    NOTE_MAX_CHARS,
    VRAM_MB_MAX,
    Grant,
    GrantRequest,
    RepoGuid,
    Sharing,
    format_instant,
    parse_guid,
    text_problem,
    whole_seconds,
)
from grants.core.table import GrantTable, Holding

_NAMED_MAX = 4
"""How many repos or nodes a message names before it counts the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a transaction does to the table.

    Args:
        table: the table afterwards, still of the old generation.
        granted: new grants, in order of the request; those that replace an older one included.
        replaced: the older grants that `granted` took the place of.
        revoked: grants taken away by request.
        expired: grants dropped because their end has come.
        warnings: what the operator should know although it broke no rule.
    """

    table: GrantTable
    granted: tuple[Grant, ...] = ()
    replaced: tuple[Grant, ...] = ()
    revoked: tuple[Grant, ...] = ()
    expired: tuple[Grant, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """True when there is something to write."""
        return bool(self.granted or self.revoked or self.expired)


def grant(
    table: GrantTable,
    requests: Sequence[GrantRequest],
    machine: MachineView,
    repos: Mapping[RepoGuid, str],
    now: datetime,
) -> Change:
    """The table with every request granted and every grant whose end has come dropped.

    A grant that the repo already holds is replaced: sharing, expiry, caps, note and pin become the request's.
    That the repos exist is for the caller to know; `repos` gives their names to the messages.

    Raises:
        GrantRefusedError: at least one rule is broken.
    """
    kept = table.without_expired(now)
    transaction = _Transaction(kept, machine, repos, now)
    for request in requests:
        transaction.add(request)
    if transaction.broken:
        raise GrantRefusedError(transaction.broken)
    return Change(
        table=transaction.table,
        granted=tuple(transaction.granted),
        replaced=tuple(transaction.replaced),
        expired=_dropped(table, kept, now),
        warnings=tuple(dict.fromkeys(transaction.warnings)),
    )


def revoke(
    table: GrantTable,
    repo: RepoGuid,
    devices: Iterable[str],
    repos: Mapping[RepoGuid, str],
    now: datetime,
) -> Change:
    """The table without the repo's grants of these names and without those whose end has come.

    A grant whose end has come counts as held: revoking it is no error. The same name twice is one revoke.

    Raises:
        NotGrantedError: the repo does not hold one of the names.
    """
    left = table
    revoked: list[Grant] = []
    broken: list[BrokenRule] = []
    for text in dict.fromkeys(devices):
        held = _held(table, repo, text)
        if held is None:
            broken.append(_not_granted(table, repo, text, repos))
        else:
            revoked.append(held)
            left = left.without(repo, held.device)
    if broken:
        raise NotGrantedError(broken)
    kept = left.without_expired(now)
    return Change(table=kept, revoked=tuple(revoked), expired=_dropped(left, kept, now))


def revoke_all(table: GrantTable, repo: RepoGuid, now: datetime) -> Change:
    """The table without any grant of the repo and without those whose end has come; none held is no error."""
    left = table.without_repo(repo)
    kept = left.without_expired(now)
    return Change(table=kept, revoked=table.of_repo(repo), expired=_dropped(left, kept, now))


class _Transaction:
    """Judges requests one after the other, each against the table with the ones before it granted."""

    def __init__(
        self, table: GrantTable, machine: MachineView, repos: Mapping[RepoGuid, str], now: datetime
    ) -> None:
        self.table = table
        self.granted: list[Grant] = []
        self.replaced: list[Grant] = []
        self.broken: list[BrokenRule] = []
        self.warnings: list[str] = []
        self._machine = machine
        self._repos = repos
        self._now = now
        self._seen: set[tuple[RepoGuid, str]] = set()
        self._others: tuple[Holding, ...] = ()
        self._others_of: RepoGuid | None = None

    def add(self, request: GrantRequest) -> None:
        """Grants the request, or records every rule that it breaks."""
        before = len(self.broken)
        self._check_fields(request)
        meaning = self._meaning(request)
        if (request.repo, request.device) in self._seen:
            self._break(
                request,
                GrantRule.DUPLICATE_DEVICE,
                f"device {request.device} is named twice in one request",
                "name it once",
            )
        self._seen.add((request.repo, request.device))
        if meaning is None:
            return
        name, pin = meaning
        self._check_holders(request, name, pin)
        if len(self.broken) == before:
            self._grant(request, name, pin)

    def _check_fields(self, request: GrantRequest) -> None:
        try:
            parse_guid(request.repo)
        except MalformedError as exc:
            self._break(request, GrantRule.MALFORMED_REPO, exc.message, exc.hint)
        if request.expires_at is not None and whole_seconds(request.expires_at) <= self._now:
            self._break(
                request,
                GrantRule.EXPIRY_PAST,
                f"the expiry {format_instant(request.expires_at)} is not after {format_instant(self._now)}",
                "give a moment to come, such as '--expires 8h', or none",
            )
        if request.vram_mb is not None and not 0 < request.vram_mb <= VRAM_MB_MAX:
            self._break(
                request,
                GrantRule.VRAM_CAP,
                f"the VRAM cap of {request.vram_mb} MB is not from 1 to {VRAM_MB_MAX}",
                "give a cap above 0, such as '--vram-mb 8192', or none",
            )
        texts = (
            ("note", request.note, NOTE_MAX_CHARS),
            ("granter", request.granted_by, GRANTED_BY_MAX_CHARS),
        )
        for field, text, limit in texts:
            problem = text_problem(text, limit)
            if problem is not None:
                self._break(
                    request,
                    GrantRule.MALFORMED_TEXT,
                    f"the {field} {text[:40]!r} {problem}",
                    f"use at most {limit} printable characters in one line",
                )

    def _meaning(self, request: GrantRequest) -> tuple[QualifiedName, Pin] | None:
        """The name and what it means, or None when it means nothing, which then is recorded."""
        try:
            name = QualifiedName.parse(request.device)
        except MalformedError as exc:
            self._break(
                request, GrantRule.MALFORMED_DEVICE, exc.message, self._suggest(request, self._alike(request))
            )
            return None
        meaning = self._machine.meaning(name)
        if meaning.pin is not None:
            return name, meaning.pin
        catalog = self._machine.catalog
        if name in catalog.conflicts:
            remedy = "keep one spec that defines it and move the other away"
        else:
            remedy = self._suggest(request, () if name in catalog.devices else catalog.near(name))
        detail = f"device {name} cannot be resolved on this machine: {meaning.reason}"
        self._break(request, GrantRule.UNKNOWN_DEVICE, detail, remedy)
        return None

    def _alike(self, request: GrantRequest) -> tuple[QualifiedName, ...]:
        """Names that end like a text that is no name, such as `0`, `gpu=0` or `/dev/dri/renderD128`."""
        tail = request.device.replace(":", "=").rsplit("=", 1)[-1].rsplit("/", 1)[-1].strip()
        names = sorted(self._machine.catalog.devices)
        return tuple(name for name in names if tail and name.device == tail)[:_NAMED_MAX]

    def _suggest(self, request: GrantRequest, near: Sequence[QualifiedName]) -> str:
        if not near:
            return "'renet cdi list' shows the names of this machine and the specs that do not load"
        command = f"rdc repo gpu grant {self._quoted(request.repo)} --device {near[0]}"
        others = ", ".join(map(str, near[1:]))
        return f"did you mean {near[0]}: '{command}'" + (f"; others like it: {others}" if others else "")

    def _check_holders(self, request: GrantRequest, name: QualifiedName, pin: Pin) -> None:
        """Exclusive against every live grant of other repos, in both directions.

        A grant stands for what it pinned and for what its name means now: after cards changed places both
        stay blocked until an operator has sorted it out.
        """
        wanted = request.sharing is Sharing.EXCLUSIVE
        for holding in self._holdings_beside(request.repo):
            if not (holding.exclusive or (wanted and holding.shared)):
                continue
            common = () if holding.device == name else self._common(pin, holding)
            if holding.device != name and not common:
                continue
            if holding.exclusive:
                rule = GrantRule.OVERLAPS_EXCLUSIVE if common else GrantRule.ALREADY_EXCLUSIVE
                self._break_held(request, rule, holding, holding.exclusive, common)
            if wanted and holding.shared:
                rule = GrantRule.OVERLAPS_SHARED if common else GrantRule.ALREADY_SHARED
                self._break_held(request, rule, holding, holding.shared, common)

    def _holdings_beside(self, repo: RepoGuid) -> tuple[Holding, ...]:
        """What other repos hold. What this transaction granted to `repo` itself cannot change it."""
        if self._others_of != repo:
            self._others = tuple(holding.without(repo) for holding in self.table.holdings(self._now))
            self._others_of = repo
        return self._others

    def _common(self, pin: Pin, holding: Holding) -> tuple[str, ...]:
        common = same_hardware(pin, holding.pin)
        current = self._machine.meaning(holding.device).pin
        return common or (same_hardware(pin, current) if current is not None else ())

    def _grant(self, request: GrantRequest, name: QualifiedName, pin: Pin) -> None:
        new = Grant(
            repo=request.repo,
            device=name,
            sharing=request.sharing,
            isolation=request.isolation,
            vram_mb=request.vram_mb,
            expires_at=None if request.expires_at is None else whole_seconds(request.expires_at),
            granted_at=whole_seconds(self._now),
            granted_by=request.granted_by,
            note=request.note,
            pin=pin,
        )
        old = self.table.get(request.repo, name)
        if old is not None:
            self.replaced.append(old)
            reason = drifted(old.pin, pin)
            if reason is not None:
                self.warnings.append(f"{name} is granted anew as what it means now: {reason}")
        self.warnings.extend(self._machine.warnings(name, pin, request.sharing))
        self.granted.append(new)
        self.table = self.table.with_grant(new)

    def _break_held(
        self,
        request: GrantRequest,
        rule: GrantRule,
        holding: Holding,
        holders: Sequence[RepoGuid],
        common: Sequence[str],
    ) -> None:
        by = f"held by {_some([self._named(guid) for guid in holders])} as {holding.device}"
        how = "exclusively " if holders is holding.exclusive else ""
        detail = f"device {request.device} is {how}{by}"
        if common:
            detail = f"device {request.device} opens {_some(common)}, which is {how}{by}"
        revokes = [
            f"'rdc repo gpu revoke {self._quoted(guid)} --device {holding.device}'"
            for guid in holders[:_NAMED_MAX]
        ]
        remedy = f"{' and '.join(revokes)} first"
        if len(holders) > _NAMED_MAX:
            remedy += " and the other holders ('rdc repo gpu list')"
        if not holding.exclusive:
            remedy += ", or grant it without --exclusive"
        self._break(request, rule, detail, remedy)

    def _break(self, request: GrantRequest, rule: GrantRule, detail: str, remedy: str) -> None:
        broken = BrokenRule(rule=rule, device=request.device, detail=detail, remedy=remedy)
        if broken not in self.broken:
            self.broken.append(broken)

    def _named(self, repo: RepoGuid) -> str:
        return f"repo {self._repos.get(repo, repo)}"

    def _quoted(self, repo: RepoGuid) -> str:
        return shlex.quote(self._repos.get(repo, repo))


def _held(table: GrantTable, repo: RepoGuid, text: str) -> Grant | None:
    try:
        return table.get(repo, QualifiedName.parse(text))
    except MalformedError:
        return None


def _not_granted(table: GrantTable, repo: RepoGuid, text: str, repos: Mapping[RepoGuid, str]) -> BrokenRule:
    name = repos.get(repo, repo)
    held = [str(grant.device) for grant in table.of_repo(repo)]
    holds = f"it holds {_some(held)}" if held else "it holds no grant"
    return BrokenRule(
        rule=GrantRule.NOT_GRANTED,
        device=text,
        detail=f"device {text} is not granted to repo {name}: {holds}",
        remedy=f"'rdc repo gpu list {shlex.quote(name)}' shows what can be revoked",
    )


def _dropped(before: GrantTable, after: GrantTable, now: datetime) -> tuple[Grant, ...]:
    if len(before) == len(after):
        return ()
    return tuple(
        grant
        for repo, rows in before.rows.items()
        if len(rows) != len(after.rows.get(repo, ()))
        for grant in before.of_repo(repo)
        if not grant.live(now)
    )


def _some(words: Sequence[str]) -> str:
    named = ", ".join(words[:_NAMED_MAX])
    return named if len(words) <= _NAMED_MAX else f"{named} and {len(words) - _NAMED_MAX} more"
