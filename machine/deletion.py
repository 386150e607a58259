"""What deleting a repo loses, and deleting it."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from base.clock import Clock
from base.errors import (
    AccessError,
    MalformedError,
    NotFoundError,
    RdcError,
    RefusedError,
    UnreachableError,
)
from base.layout import Layout
from gate.core.repo import RepoConfig, RepoName
from gate.core.repo_text import claimed_guid
from gate.repos import RepoFiles
from grants.core.model import Grant, RepoGuid
from grants.store import GrantStore
from machine.core.engine_info import Contents
from machine.core.refs import RepoRef
from machine.daemon import STOP_TIMEOUT_S, ManagedDaemon
from machine.docker import Daemon
from machine.journal import Journal
from machine.managed import managed_daemon
from machine.repos import changing, find, keeps_daemons, upstream_socket

_POLL_S = 0.1
_GATE_TIMEOUT_S = 10.0
_FOLLOW_TIMEOUT_S = STOP_TIMEOUT_S + 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """What is to be deleted.

    `config` is the repo as far as it is known: of one whose file is broken or gone, name and GUID alone; None
    when its file does not even say a GUID. `problem` is why its file cannot be used. `twins` are repos whose
    files say the same GUID: what is under it is theirs, and only the file goes.
    """

    name: RepoName
    config: RepoConfig | None
    problem: str = ""
    twins: tuple[RepoName, ...] = ()

    @property
    def only_file(self) -> bool:
        """Whether nothing but the file is deleted."""
        return self.config is None or bool(self.twins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What would be gone; `data` is None when the daemon is not ours.

    `holders` are names of running containers with a device. `contents` is None when the daemon does not
    answer.
    """

    grants: tuple[Grant, ...] = ()
    data: Path | None = None
    contents: Contents | None = None
    holders: tuple[str, ...] = ()


def doomed(layout: Layout, reference: str) -> Doomed:
    """The repo to delete, even one whose file is broken, or whose deletion was interrupted.

    Raises:
        NotFoundError: there is no such repo, and nothing is left of one.
        RefusedError: the ref is a GUID that several files say.
    """
    ref, files = RepoRef.parse(reference), RepoFiles(layout)
    problem = ""
    try:
        config = find(layout, reference)
    except (MalformedError, AccessError) as exc:
        guid, problem = claimed_guid(files.text(RepoName(ref.name))), exc.message
        if guid is None:
            return Doomed(name=RepoName(ref.name), config=None, problem=problem)
        config = RepoConfig(name=RepoName(ref.name), guid=guid)
    except NotFoundError as exc:
        names = files.claiming(ref.name) if ref.is_guid else ()
        if len(names) > 1:
            raise RefusedError(
                f"GUID {ref.name} stands in the files of repos {', '.join(names)}",
                hint=f"'rdc repo delete {names[-1]}' removes a file that is a copy, and nothing else",
            ) from exc
        if names:
            return doomed(layout, names[0])
        if not ref.is_guid or not _left_over(layout, ref.name):
            raise
        return Doomed(name=RepoName(ref.name), config=RepoConfig(name=RepoName(ref.name[:8]), guid=ref.name))
    twins = tuple(each for each in files.claiming(config.guid) if each != config.name)
    return Doomed(name=config.name, config=config, problem=problem, twins=twins)


def loss(layout: Layout, doom: Doomed, clock: Clock) -> Loss:
    """Look at what the repo has now."""
    config = doom.config
    if config is None or doom.only_file:
        return Loss()
    grants = GrantStore(layout, clock).read().of_repo(RepoGuid(config.guid))
    daemon = Daemon(upstream_socket(layout, config))
    contents = None
    holders: tuple[str, ...] = ()
    with contextlib.suppress(RdcError):  # a daemon that does not answer must not keep a repo
        contents = daemon.contents()
        holders = tuple(each.name for each in daemon.holders(str(grant.device) for grant in grants))
    state = layout.repo(config.guid).state
    return Loss(
        grants=grants,
        data=state if config.managed and state.exists() else None,
        contents=contents,
        holders=holders,
    )


def delete(
    layout: Layout,
    doom: Doomed,
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
    config = doom.config
    told = config or RepoConfig(name=doom.name, guid="unknown")
    journal = Journal(layout, clock, {RepoGuid(told.guid): told.name})
    journal.deleting(told, only_file=doom.only_file)
    with changing(layout):
        _delete_file(layout, doom)
    if config is not None and not doom.only_file:
        _await_gate(layout, config, clock, sleep)
        daemon = managed_daemon(layout, config, environ)
        if config.managed:
            _stop(layout, daemon, clock, sleep)
        GrantStore(layout, clock, journal=journal.changing).revoke_all(RepoGuid(config.guid))
        daemon.remove()
    journal.check()


def _delete_file(layout: Layout, doom: Doomed) -> None:
    """Remove the repo's file by the name that it has now: it may have been renamed since it was looked up."""
    files = RepoFiles(layout)
    if doom.config is None or doom.twins:
        files.delete(doom.name)
        return
    for name in files.claiming(doom.config.guid):
        files.delete(name)


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
