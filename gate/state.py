"""What the gate knows of the machine: its grants and specs, read again as soon as a stat says they changed.

Every inspected request asks for the state of that moment, so that a grant or revoke is in force for the next
request without anybody telling the gate. A store or spec directory that cannot be read stops no container
that asks for no device: it only makes every device unusable, with the reason.
"""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from base.clock import Clock
from base.errors import RdcError
from cdi.core.catalog import Catalog
from cdi.core.names import QualifiedName
from cdi.core.resolve import Probe
from cdi.directories import fingerprint, load_catalog
from gate.core.policy import Granted, NotGranted, Unusable
from gate.core.watch import Permit
from grants.core.machine import GrantState, MachineView
from grants.core.model import RepoGuid
from grants.core.table import GrantTable
from grants.store import GrantStore

_WORDS = {
    GrantState.EXPIRED: Unusable.EXPIRED,
    GrantState.DRIFTED: Unusable.DRIFTED,
    GrantState.UNRESOLVABLE: Unusable.OTHER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Grants and specs as read together; `failure` says why there are none."""

    table: GrantTable
    catalog: Catalog
    failure: str = ""


class GrantsNow:
    """One repo's grants at one instant: a `gate.core.policy.GrantView`, and a `gate.core.watch.Permits`.

    Device nodes are looked at once, when first asked for: lstat on `/dev`, which does not block.
    """

    __slots__ = ("_machine", "_now", "_repo", "_snapshot")

    def __init__(self, repo: RepoGuid, snapshot: Snapshot, probe: Probe, now: datetime) -> None:
        self._repo = repo
        self._snapshot = snapshot
        self._machine = MachineView(snapshot.catalog, probe)
        self._now = now

    def status(self, device: QualifiedName) -> Granted | NotGranted:
        """Whether the repo may use the device now."""
        if self._snapshot.failure:
            return NotGranted(reason=Unusable.OTHER, detail=self._snapshot.failure)
        grant = self._snapshot.table.get(self._repo, device)
        if grant is None:
            return NotGranted(reason=Unusable.MISSING)
        status = self._machine.status(grant, self._now)
        if status.live:
            return Granted()
        return NotGranted(reason=_WORDS[status.state], detail=status.reason)

    @property
    def known(self) -> bool:
        """Whether the grants could be read."""
        return not self._snapshot.failure

    def permit(self, device: QualifiedName) -> Permit:
        """As `status`, with the end of a live grant."""
        status = self.status(device)
        if isinstance(status, NotGranted):
            return Permit(reason=status.reason, detail=status.detail)
        grant = self._snapshot.table.get(self._repo, device)
        return Permit(reason=None, until=None if grant is None else grant.expires_at)

    def names(self) -> tuple[QualifiedName, ...]:
        """Every device that the repo may use now."""
        grants = () if self._snapshot.failure else self._snapshot.table.of_repo(self._repo)
        return tuple(grant.device for grant in grants if isinstance(self.status(grant.device), Granted))


class MachineState:
    """The current snapshot.

    Args:
        store: the grants.
        spec_dirs: the machine's spec directories in precedence order.
        probe: looks at device nodes.
        clock: tells which grants have ended.
    """

    def __init__(self, store: GrantStore, spec_dirs: Sequence[Path], probe: Probe, clock: Clock) -> None:
        self._store = store
        self._spec_dirs = tuple(spec_dirs)
        self._probe = probe
        self._clock = clock
        self._reading = asyncio.Lock()
        self._seen: Hashable = object()
        self._snapshot = Snapshot(table=GrantTable.empty(), catalog=Catalog.of(()))

    @property
    def failure(self) -> str:
        """Why the grants cannot be told now, as of the last look; empty when they can."""
        return self._snapshot.failure

    async def current(self) -> Snapshot:
        """Grants and specs as they are now; the same object as long as nothing changed."""
        if self._fingerprint() != self._seen:
            async with self._reading:
                seen = self._fingerprint()
                if seen != self._seen:
                    self._snapshot = await asyncio.to_thread(self._read)
                    # A failure may pass (too many open files): the next request reads again.
                    self._seen = object() if self._snapshot.failure else seen
        return self._snapshot

    def latest(self) -> Snapshot:
        """The same for threads that may wait: what was read last if that is still true, else read anew.

        Raises:
            RdcError: it cannot be read.
        """
        snapshot, seen = self._snapshot, self._seen
        if self._fingerprint() != seen:
            snapshot = self._read()
        if snapshot.failure:
            raise RdcError(snapshot.failure)
        return snapshot

    async def grants_of(self, repo: RepoGuid) -> GrantsNow:
        """The repo's grants at this instant."""
        return GrantsNow(repo, await self.current(), self._probe, self._clock.now())

    def _fingerprint(self) -> Hashable:
        """Taken before reading: what changes meanwhile differs from it, and is read again the next time."""
        try:
            return (self._store.fingerprint(), fingerprint(self._spec_dirs))
        except RdcError as exc:
            return exc.message

    def _read(self) -> Snapshot:
        try:
            return Snapshot(table=self._store.read(), catalog=load_catalog(self._spec_dirs))
        except RdcError as exc:
            failure = f"{exc.message} ({exc.hint})" if exc.hint else exc.message
            return Snapshot(table=GrantTable.empty(), catalog=Catalog.of(()), failure=failure)
