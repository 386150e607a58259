"""Keeps every repo's projection in step with grants, specs and time.

`rdc` writes a repo's projection itself when it grants or revokes; this is for everything else: specs that
were generated anew, grants that expire, a store that was restored, a reboot that emptied `/run`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime

from base.clock import Clock
from base.errors import RdcError
from base.layout import Layout
from cdi.core.library import Library, library_of_engine
from cdi.core.names import QualifiedName
from cdi.core.resolve import Probe
from gate.daemon import DaemonClient
from gate.state import MachineState, Snapshot
from grants.core.model import Grant, RepoGuid
from grants.projector import sync_projection

_log = logging.getLogger(__name__)

RESYNC_S = 60.0
"""How often everything is looked at again: device nodes change without any file changing."""

ASK_AGAIN_S = 2.0
"""How often a daemon that did not answer is asked again for its version."""


class Projections:
    """Writes what is out of date.

    Args:
        layout: where the projections lie.
        state: grants and specs.
        probe: looks at device nodes.
        clock: tells which grants have ended.
    """

    def __init__(self, layout: Layout, state: MachineState, probe: Probe, clock: Clock) -> None:
        self._layout = layout
        self._state = state
        self._probe = probe
        self._clock = clock
        self._written: dict[RepoGuid, tuple[object, tuple[Grant, ...]]] = {}
        self._libraries: dict[RepoGuid, Library] = {}
        self._failures: dict[RepoGuid, str] = {}
        self._done: Snapshot | None = None
        self._expiry: datetime | None = None
        self._swept_s = clock.monotonic_s()
        self._asked_s = clock.monotonic_s() - ASK_AGAIN_S

    async def follow(self, daemons: Mapping[RepoGuid, DaemonClient]) -> None:
        """Bring the projections of these repos up to date; cheap when nothing changed.

        What cannot be written is logged and tried again at the next call.
        """
        snapshot = await self._state.current()
        if snapshot.failure:
            return  # nothing is known of any grant: what the daemons can resolve stays as it was
        self._forget_when_due(snapshot)
        await self._ask_versions(daemons)
        if self._done is snapshot and self._written.keys() == daemons.keys():
            return
        for repo in self._written.keys() - daemons.keys():
            del self._written[repo]
        for repo in daemons:
            if self._written.get(repo) != _wanted(repo, snapshot):
                await self._write(repo, snapshot)
        self._done = snapshot

    def _forget_when_due(self, snapshot: Snapshot) -> None:
        """Drop the memory of what was written once time has changed what should be."""
        now, monotonic_s = self._clock.now(), self._clock.monotonic_s()
        if self._expiry is not None and now >= self._expiry:
            self._written.clear()
            self._expiry = snapshot.table.next_expiry(now)
        elif self._done is not snapshot:
            self._expiry = snapshot.table.next_expiry(now)
        if monotonic_s - self._swept_s >= RESYNC_S:
            self._swept_s = monotonic_s
            self._written.clear()
            self._libraries.clear()

    async def _ask_versions(self, daemons: Mapping[RepoGuid, DaemonClient]) -> None:
        """Learn which CDI library each daemon has; a projection made before that is made again."""
        for repo in self._libraries.keys() - daemons.keys():
            del self._libraries[repo]
        unknown = daemons.keys() - self._libraries.keys()
        if not unknown or self._clock.monotonic_s() - self._asked_s < ASK_AGAIN_S:
            return
        self._asked_s = self._clock.monotonic_s()
        for repo in unknown:
            with contextlib.suppress(RdcError):
                info = await daemons[repo].info()
                self._libraries[repo] = library_of_engine(str(info.get("ServerVersion", "")))
                self._written.pop(repo, None)

    async def _write(self, repo: RepoGuid, snapshot: Snapshot) -> None:
        try:
            report = await asyncio.to_thread(
                sync_projection,
                self._layout,
                repo,
                load_table=lambda: self._state.latest().table,
                load_catalog=lambda: self._state.latest().catalog,
                probe=self._probe,
                clock=self._clock,
                libraries=(self._libraries.get(repo, library_of_engine("")),),
            )
        except RdcError as exc:
            if self._failures.get(repo) != exc.message:
                self._failures[repo] = exc.message
                _log.warning("gate.projection_failed repo=%s %s", repo, exc.message)
            return
        self._failures.pop(repo, None)
        self._written[repo] = _wanted(repo, snapshot)
        if report.written or report.removed:
            left_out = (each.device for each in report.left_out)
            _log.info(
                "gate.projection repo=%s devices=%s left_out=%s", repo, _list(report.devices), _list(left_out)
            )


def _wanted(repo: RepoGuid, snapshot: Snapshot) -> tuple[object, tuple[Grant, ...]]:
    """What a repo's projection is made from."""
    return (snapshot.catalog, snapshot.table.of_repo(repo))


def _list(names: Iterable[QualifiedName]) -> str:
    return ",".join(map(str, names)) or "-"
