"""All grants of a machine at one generation. Pure.

A machine may hold tens of thousands of grants and every command reads them all, while it looks closely at a
few. So the table keeps the checked rows of the document as they are and makes a `Grant` of one when asked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NewType, NotRequired, TypedDict

from cdi.core.names import QualifiedName
from cdi.core.pin import Pin
from grants.core.model import Grant, Isolation, RepoGuid, Sharing, format_instant, parse_instant

_SHARINGS = {sharing.value: sharing for sharing in Sharing}

PinId = NewType("PinId", str)
"""The key of a pin in the document; grants of the same meaning share one."""


class Row(TypedDict):
    """One grant as the document holds it; the meaning of the fields is `Grant`'s."""

    device: str
    pin: PinId
    sharing: str
    granted_at: str
    granted_by: str
    isolation: NotRequired[str]
    vram_mb: NotRequired[int]
    expires_at: NotRequired[str]
    note: NotRequired[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Who holds one name with one pinned meaning; each repo stands in one of the two groups."""

    device: QualifiedName
    pin: Pin
    shared: tuple[RepoGuid, ...]
    exclusive: tuple[RepoGuid, ...]

    def without(self, repo: RepoGuid) -> "Holding":
        """The same without one repo."""
        return Holding(
            device=self.device,
            pin=self.pin,
            shared=tuple(guid for guid in self.shared if guid != repo),
            exclusive=tuple(guid for guid in self.exclusive if guid != repo),
        )


class GrantTable:
    """Grants by repo; immutable. At most one grant per repo and device; expired ones may still be in it.

    Args:
        generation: how many writes the store has seen; 0 is the store that was never written.
        pins: every pin that a row names.
        rows: checked rows by repo, each repo's ordered by device text; not to be changed afterwards.
    """

    __slots__ = ("_by_device", "_generation", "_names", "_pins", "_rows")

    def __init__(
        self,
        *,
        generation: int,
        pins: Mapping[PinId, Pin],
        rows: Mapping[RepoGuid, Sequence[Row]],
        names: Mapping[str, QualifiedName] | None = None,
    ) -> None:
        self._generation = generation
        self._pins = pins
        self._rows = rows
        self._names = dict(names or {})
        self._by_device: dict[RepoGuid, dict[QualifiedName, Grant]] = {}

    @classmethod
    def empty(cls) -> "GrantTable":
        """The table of a store that was never written."""
        return cls(generation=0, pins={}, rows={})

    def learn_from(self, older: "GrantTable") -> None:
        """Take over grants that an older table has made of the very rows and equal pins of this one.

        Only saves time: a table answers the same with or without.
        """
        if older.pins.items() <= self._pins.items():
            made = older._by_device.copy()  # noqa: SLF001 - ours; a copy, as other threads may add to it
            for repo, grants in made.items():
                if self._rows.get(repo) is older.rows.get(repo):
                    self._by_device[repo] = grants

    @property
    def generation(self) -> int:
        """Number of writes that led here."""
        return self._generation

    @property
    def pins(self) -> Mapping[PinId, Pin]:
        """Pins by their key in the document; some may have lost their last grant."""
        return self._pins

    @property
    def rows(self) -> Mapping[RepoGuid, Sequence[Row]]:
        """The document's rows by repo, for encoders and for listings that need no `Grant`."""
        return self._rows

    @property
    def repos(self) -> tuple[RepoGuid, ...]:
        """Every repo that has a grant, live or expired, in order of GUID."""
        return tuple(sorted(self._rows))

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def __iter__(self) -> Iterator[Grant]:
        """Every grant, by repo and device text."""
        for repo in self.repos:
            yield from self.of_repo(repo)

    def of_repo(self, repo: RepoGuid) -> tuple[Grant, ...]:
        """The repo's grants, live and expired, ordered by device text."""
        return tuple(self._of(repo).values())

    def get(self, repo: RepoGuid, device: QualifiedName) -> Grant | None:
        """The repo's grant of exactly this name, live or expired."""
        return self._of(repo).get(device)

    def holders_of(self, device: QualifiedName) -> tuple[Grant, ...]:
        """Grants of exactly this name, live and expired, in order of repo GUID."""
        text = str(device)
        repos = (repo for repo in self.repos if any(row["device"] == text for row in self._rows[repo]))
        return tuple(self._of(repo)[device] for repo in repos)

    def holdings(self, now: datetime) -> tuple[Holding, ...]:
        """Live grants grouped by name and pinned meaning.

        A machine has few of those however many repos it serves, so that rules over device nodes look at each
        once instead of at each grant.
        """
        shared: dict[tuple[str, PinId], list[RepoGuid]] = {}
        exclusive: dict[tuple[str, PinId], list[RepoGuid]] = {}
        instant = format_instant(now)
        for repo, rows in self._rows.items():
            for row in rows:
                if "expires_at" in row and row["expires_at"] <= instant:
                    continue
                group = exclusive if row["sharing"] == Sharing.EXCLUSIVE.value else shared
                group.setdefault((row["device"], row["pin"]), []).append(repo)
        return tuple(
            Holding(
                device=self._name(key[0]),
                pin=self._pins[key[1]],
                shared=tuple(shared.get(key, ())),
                exclusive=tuple(exclusive.get(key, ())),
            )
            for key in sorted(shared.keys() | exclusive.keys())
        )

    def next_expiry(self, now: datetime, repo: RepoGuid | None = None) -> datetime | None:
        """When the next live grant ends (of one repo, or of any), or None when none has an end."""
        instant = format_instant(now)
        groups = self._rows.values() if repo is None else (self._rows.get(repo, ()),)
        ends = [
            row["expires_at"]
            for rows in groups
            for row in rows
            if "expires_at" in row and row["expires_at"] > instant
        ]
        return parse_instant(min(ends)) if ends else None

    def without_expired(self, now: datetime) -> "GrantTable":
        """The same without grants whose end has come; the generation stays."""
        instant = format_instant(now)
        rows: dict[RepoGuid, Sequence[Row]] = {}
        for repo, old in self._rows.items():
            kept = [row for row in old if "expires_at" not in row or row["expires_at"] > instant]
            if kept:
                rows[repo] = old if len(kept) == len(old) else kept
        return self._with(rows, self._pins)

    def with_grant(self, grant: Grant) -> "GrantTable":
        """The same with this grant, in place of the repo's grant of the same name; the generation stays."""
        pins = dict(self._pins)
        key = next((key for key, pin in pins.items() if pin == grant.pin), None)
        if key is None:
            key = PinId(str(max(map(int, pins), default=0) + 1))
            pins[key] = grant.pin
        device = str(grant.device)
        kept = [row for row in self._rows.get(grant.repo, ()) if row["device"] != device]
        kept.append(_row(grant, key))
        kept.sort(key=lambda row: row["device"])
        return self._with({**self._rows, grant.repo: kept}, pins)

    def without(self, repo: RepoGuid, device: QualifiedName) -> "GrantTable":
        """The same without the repo's grant of this name; the generation stays."""
        text = str(device)
        kept = [row for row in self._rows.get(repo, ()) if row["device"] != text]
        rows = {**self._rows, repo: kept} if kept else self._rows_without(repo)
        return self._with(rows, self._pins)

    def without_repo(self, repo: RepoGuid) -> "GrantTable":
        """The same without any grant of the repo; the generation stays."""
        return self._with(self._rows_without(repo), self._pins)

    def next_generation(self) -> "GrantTable":
        """The same as the next write: generation one higher, pins that no grant names dropped."""
        used = {row["pin"] for rows in self._rows.values() for row in rows}
        return GrantTable(
            generation=self._generation + 1,
            pins={key: pin for key, pin in self._pins.items() if key in used},
            rows=self._rows,
            names=self._names,
        )

    def _with(self, rows: Mapping[RepoGuid, Sequence[Row]], pins: Mapping[PinId, Pin]) -> "GrantTable":
        return GrantTable(generation=self._generation, pins=pins, rows=rows, names=self._names)

    def _rows_without(self, repo: RepoGuid) -> Mapping[RepoGuid, Sequence[Row]]:
        return {guid: rows for guid, rows in self._rows.items() if guid != repo}

    def _of(self, repo: RepoGuid) -> dict[QualifiedName, Grant]:
        found = self._by_device.get(repo)
        if found is None:
            grants = (self._grant(repo, row) for row in self._rows.get(repo, ()))
            found = self._by_device[repo] = {grant.device: grant for grant in grants}
        return found

    def _grant(self, repo: RepoGuid, row: Row) -> Grant:
        # The row was checked when it was read, so that its instants need no second look at their spelling.
        return Grant(
            repo=repo,
            device=self._name(row["device"]),
            sharing=_SHARINGS[row["sharing"]],
            isolation=Isolation(row["isolation"]) if "isolation" in row else None,
            vram_mb=row.get("vram_mb"),
            expires_at=datetime.fromisoformat(row["expires_at"]) if "expires_at" in row else None,
            granted_at=datetime.fromisoformat(row["granted_at"]),
            granted_by=row["granted_by"],
            note=row.get("note", ""),
            pin=self._pins[row["pin"]],
        )

    def _name(self, text: str) -> QualifiedName:
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = QualifiedName.parse(text)
        return name


def _row(grant: Grant, pin: PinId) -> Row:
    row = Row(
        device=str(grant.device),
        pin=pin,
        sharing=grant.sharing.value,
        granted_at=format_instant(grant.granted_at),
        granted_by=grant.granted_by,
    )
    if grant.isolation is not None:
        row["isolation"] = grant.isolation.value
    if grant.vram_mb is not None:
        row["vram_mb"] = grant.vram_mb
    if grant.expires_at is not None:
        row["expires_at"] = format_instant(grant.expires_at)
    if grant.note:
        row["note"] = grant.note
    return row
