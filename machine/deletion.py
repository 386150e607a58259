"""What deleting a repo loses, and deleting it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from base.clock import Clock
from base.errors import NotFoundError, RdcError, UnreachableError
from base.layout import Layout
from gate.core.repo import RepoConfig, RepoName
from gate.repos import RepoFiles
from grants.core.model import Grant, RepoGuid
from grants.store import GrantStore
from machine.core.refs import RepoRef
from machine.daemon import STOP_TIMEOUT_S, ManagedDaemon
from machine.docker import Daemon
from machine.journal import Journal
from machine.managed import managed_daemon
from machine.repos import find, keeps_daemons, upstream_socket

_POLL_S = 0.1
_GATE_TIMEOUT_S = 10.0
_FOLLOW_TIMEOUT_S = STOP_TIMEOUT_S + 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What would be gone; `data` is None when the daemon is not ours.

    `holders` are names of running containers with a device. `containers` and `images` are None when the
    daemon does not answer.
    """

    grants: tuple[Grant, ...]
    data: Path | None
    containers: int | None
    images: int | None
    holders: tuple[str, ...]


def doomed(layout: Layout, reference: str) -> RepoConfig:
    """The repo to delete; for the GUID of one whose deletion was interrupted, what is known of it.

    Raises:
        NotFoundError: there is no such repo, and nothing is left of one.
    """
    try:
        return find(layout, reference)
    except NotFoundError:
        ref = RepoRef.parse(reference)
        if not ref.is_guid or not _left_over(layout, ref.name):
            raise
        return RepoConfig(name=RepoName(ref.name[:8]), guid=ref.name)


def loss(layout: Layout, config: RepoConfig, clock: Clock) -> Loss:
    """Look at what the repo has now."""
    grants = GrantStore(layout, clock).read().of_repo(RepoGuid(config.guid))
    daemon = Daemon(upstream_socket(layout, config))
    containers = images = None
    holders: tuple[str, ...] = ()
    try:
        containers, images = daemon.counts()
        holders = tuple(each.name for each in daemon.holders(str(grant.device) for grant in grants))
    except RdcError:
        pass  # a daemon that does not answer must not keep a repo from being deleted
    state = layout.repo(config.guid).state
    return Loss(
        grants=grants,
        data=state if config.managed and state.exists() else None,
        containers=containers,
        images=images,
        holders=holders,
    )


def delete(
    layout: Layout,
    config: RepoConfig,
    clock: Clock,
    environ: Mapping[str, str],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Delete the repo: its file, then its daemon, then its grants, then its data.

    Raises:
        UnrecordedError: it was deleted, but the audit log could not be written.
        UnreachableError: the daemon cannot be stopped; the rest is still there and can be deleted by GUID.
        RdcError: something cannot be written or removed.
    """
    journal = Journal(layout, clock, {RepoGuid(config.guid): config.name})
    journal.deleting(config)
    RepoFiles(layout).delete(config.name)
    _await_gate(layout, config, clock, sleep)
    daemon = managed_daemon(layout, config, environ)
    if config.managed:
        _stop(layout, daemon, clock, sleep)
    GrantStore(layout, clock, journal=journal.changing).revoke_all(RepoGuid(config.guid))
    daemon.remove()
    journal.check()


def _await_gate(layout: Layout, config: RepoConfig, clock: Clock, sleep: Callable[[float], None]) -> None:
    """Let a gate that runs let go of the repo first, else it would write a projection into what we remove.

    One that does not in time is no reason to stop: it will find the repo's file gone.
    """
    socket, deadline = layout.repo(config.guid).socket, clock.monotonic_s() + _GATE_TIMEOUT_S
    while Daemon(layout.gate_socket).accepts() and socket.exists() and clock.monotonic_s() < deadline:
        sleep(_POLL_S)


def _stop(layout: Layout, daemon: ManagedDaemon, clock: Clock, sleep: Callable[[float], None]) -> None:
    """Let `renet up` stop the daemon where it runs, so that it is not started again; else do it here."""
    deadline = clock.monotonic_s() + _FOLLOW_TIMEOUT_S
    while keeps_daemons(layout) and daemon.running:
        if clock.monotonic_s() > deadline:
            raise UnreachableError(
                f"'renet up' does not stop the daemon of repo {daemon.name}",
                hint=f"stop 'renet up', then 'rdc repo delete {daemon.guid}'",
            )
        sleep(_POLL_S)
    daemon.stop()


def _left_over(layout: Layout, guid: str) -> bool:
    paths = layout.repo(guid)
    return paths.directory.exists() or paths.state.exists()
