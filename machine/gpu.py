"""Granting and revoking as an operator means it: store, projection, and the daemon's word."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from base.clock import Clock
from base.errors import RdcError
from base.layout import Layout
from cdi.core.catalog import Catalog
from cdi.core.library import Library, library_of_engine
from cdi.core.names import QualifiedName
from cdi.directories import load_catalog
from cdi.probe import SystemProbe
from gate.core.repo import RepoConfig
from gate.repos import RepoFiles
from grants.core.machine import GrantStatus, MachineView
from grants.core.model import Grant, GrantRequest, RepoGuid
from grants.core.renewal import Renewal
from grants.projector import SyncReport, sync_projection
from grants.store import GrantStore, Outcome
from machine.config import load_machine_config
from machine.core.engine_info import Holder
from machine.docker import Daemon
from machine.journal import Journal
from machine.readiness import Readiness, State, await_readiness
from machine.repos import RepoNames, upstream_socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What a grant did; `readiness` is None for a dry run."""

    outcome: Outcome
    readiness: Readiness | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """What a revoke did, and which running containers still hold one of the devices.

    `holders` is None, with the reason in `unknown`, when the daemon could not be asked. `stopped` are
    those that were stopped. `unrecorded` says why something of it is missing in the audit log.
    """

    outcome: Outcome
    holders: tuple[Holder, ...] | None
    stopped: tuple[Holder, ...] = ()
    unknown: str = ""
    unrecorded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regranted:
    """What a regrant did, or would do while `readiness` is None.

    `readiness` and `holders` are by repo: how its daemon takes the new meaning, and the containers that were
    started while the name meant the old one; a repo whose daemon does not answer has no holders known.
    """

    outcome: Outcome
    readiness: Mapping[RepoGuid, Readiness] | None = None
    holders: Mapping[RepoGuid, tuple[Holder, ...]] = field(default_factory=dict)


class Gpu:
    """One machine's grants.

    Args:
        layout: the machine's files.
        clock: tells the time.
        sleep: pauses while a daemon is waited for.
    """

    def __init__(self, layout: Layout, clock: Clock, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._layout = layout
        self._clock = clock
        self._sleep = sleep
        self._names = RepoNames(layout)
        self._journal = Journal(layout, clock, self._names)
        self._store = GrantStore(layout, clock, journal=self._journal.changing)
        self._probe = SystemProbe()

    def catalog(self) -> Catalog:
        """The machine's specs as they are now."""
        return load_catalog(load_machine_config(self._layout).cdi_spec_dirs)

    def grant(self, repo: RepoConfig, requests: Sequence[GrantRequest], *, dry_run: bool = False) -> Granted:
        """Grant all or none, then see that the repo's daemon can resolve the devices.

        Raises:
            GrantRefusedError: a rule is broken.
            RdcError: the store or the audit log cannot be read or written. What comes after (projection,
                daemon) is no error any more: the grant is recorded then, and `readiness` tells what is wrong.
        """
        self._names.learn(repo)
        with contextlib.nullcontext() if dry_run else self._journal.granting(repo):
            outcome = self._store.grant(
                requests,
                load_catalog=self.catalog,
                probe=self._probe,
                repo_names=self._names,
                dry_run=dry_run,
            )
        if dry_run:
            return Granted(outcome=outcome, readiness=None)
        devices = tuple(grant.device for grant in outcome.change.granted)
        return Granted(outcome=outcome, readiness=self._make_ready(repo, devices))

    def regrant(
        self,
        repo: RepoConfig | None,
        devices: Sequence[str],
        *,
        granted_by: str,
        confirmed: Sequence[Grant] | None,
    ) -> Regranted:
        """Pin drifted grants to what their names mean now, all or none; their terms stay.

        Args:
            repo: whose; None for every repo's.
            devices: which; none for all that have drifted.
            granted_by: who renews them.
            confirmed: what an earlier call without it showed; None changes nothing.

        Raises:
            ChangedMeanwhileError: the result would not be what was confirmed.
            NotGrantedError: no such grant is held.
            GrantRefusedError: a rule is broken.
            RdcError: the store or the audit log cannot be read or written.
        """
        if repo is not None:
            self._names.learn(repo)
        with contextlib.nullcontext() if confirmed is None else self._journal.granting(repo):
            outcome = self._store.regrant(
                Renewal(
                    repo=None if repo is None else RepoGuid(repo.guid),
                    devices=tuple(devices),
                    granted_by=granted_by,
                ),
                load_catalog=self.catalog,
                probe=self._probe,
                repo_names=self._names,
                confirmed=confirmed,
            )
        if confirmed is None:
            return Regranted(outcome=outcome)
        configs = (repo,) if repo is not None else RepoFiles(self._layout).list().repos
        readiness: dict[RepoGuid, Readiness] = {}
        holders: dict[RepoGuid, tuple[Holder, ...]] = {}
        for config in configs:
            guid = RepoGuid(config.guid)
            named = tuple(each.device for each in outcome.change.granted if each.repo == guid)
            if named:
                readiness[guid] = self._make_ready(config, named)
                with contextlib.suppress(RdcError):
                    holders[guid] = self._daemon(config).holders(map(str, named))
        return Regranted(outcome=outcome, readiness=readiness, holders=holders)

    def revoke(
        self, repo: RepoGuid, devices: Sequence[str] | None, config: RepoConfig | None, *, stop: bool
    ) -> Revoked:
        """Take grants away; the projection follows before this returns.

        Args:
            repo: whose grants.
            devices: which; None for all.
            config: the repo, None when its file is gone and only grants are left.
            stop: also stop the containers that hold one of the devices.

        Raises:
            NotGrantedError: the repo does not hold one of them; nothing was revoked.
            RdcError: the store cannot be read or written.
        """
        if config is not None:
            self._names.learn(config)
        if devices is None:
            outcome = self._store.revoke_all(repo)
        else:
            outcome = self._store.revoke(repo, devices, repo_names=self._names)
        if config is None:
            return Revoked(outcome=outcome, holders=(), unrecorded=self._journal.failure)
        self._project(config, self._daemon(config))
        done = self._look_for_holders(config, outcome, stop=stop)
        return replace(done, unrecorded=self._journal.failure)

    def list(self, repo: RepoConfig | None) -> tuple[tuple[Grant, GrantStatus], ...]:
        """Every grant, or one repo's, with what has become of it; in the order of repo names and devices.

        Raises:
            RdcError: store or specs cannot be read.
        """
        table = self._store.read()
        machine = MachineView(self.catalog(), self._probe)
        grants = tuple(table) if repo is None else table.of_repo(RepoGuid(repo.guid))
        now = self._clock.now()
        return tuple((grant, machine.status(grant, now)) for grant in grants)

    def grants_of(self, repo: RepoGuid) -> tuple[Grant, ...]:
        """A repo's grants as recorded, whatever has become of them."""
        return self._store.read().of_repo(repo)

    def name_of(self, repo: RepoGuid) -> str:
        """The repo's name, or its GUID when its file is gone."""
        return self._names.get(repo, str(repo))

    def _daemon(self, repo: RepoConfig) -> Daemon:
        return Daemon(upstream_socket(self._layout, repo))

    def _make_ready(self, repo: RepoConfig, devices: tuple[QualifiedName, ...]) -> Readiness:
        daemon = self._daemon(repo)
        report = self._project(repo, daemon)
        if isinstance(report, Readiness):
            return report
        left_out = [each for each in report.left_out if each.device in devices]
        if left_out:
            reasons = "; ".join(f"{each.device}: {each.reason}" for each in left_out)
            return Readiness(state=State.NOT_SEEN, detail=f"not given to the daemon: {reasons}")
        names = tuple(str(device) for device in devices)
        return await_readiness(daemon, report.directory, names, self._clock, sleep=self._sleep)

    def _project(self, repo: RepoConfig, daemon: Daemon) -> SyncReport | Readiness:
        """Write the repo's projection; as a `Readiness` why not.

        The gate would do it a moment later, but it may not be running.
        """
        try:
            return sync_projection(
                self._layout,
                RepoGuid(repo.guid),
                load_table=self._store.read,
                load_catalog=self.catalog,
                probe=self._probe,
                clock=self._clock,
                libraries=self._libraries(daemon),
            )
        except RdcError as exc:
            return Readiness(
                state=State.NOT_SEEN, detail=f"the projection is as it was: {exc.message}", remedy=exc.hint
            )

    def _libraries(self, daemon: Daemon) -> tuple[Library, ...]:
        try:
            return (library_of_engine(daemon.info().version),)
        except RdcError:
            return (library_of_engine(""),)  # as the gate does until the daemon tells

    def _look_for_holders(self, config: RepoConfig, outcome: Outcome, *, stop: bool) -> Revoked:
        daemon = self._daemon(config)
        try:
            holders = daemon.holders(str(grant.device) for grant in outcome.change.revoked)
            if stop:
                for each in holders:
                    daemon.stop(each.id)
                    self._journal.stopped(config, each)
        except RdcError as exc:
            return Revoked(outcome=outcome, holders=None, unknown=exc.message)
        return Revoked(outcome=outcome, holders=() if stop else holders, stopped=holders if stop else ())
