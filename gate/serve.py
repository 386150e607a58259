"""Runs the gate of one machine: every repo on its own socket; repos, policies and grants are followed.

Nothing has to tell the gate that something changed: repo files and specs are looked at four times a second,
grants and specs at every inspected request.
"""

import asyncio
import contextlib
import grp
import logging
import resource
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from base.clock import Clock, SystemClock
from base.errors import RdcError
from base.files import make_directory
from base.layout import Layout, RepoPaths
from base.run_lock import held
from cdi.probe import SystemProbe
from gate.audit_writer import AuditWriter
from gate.core.audit_chain import Event
from gate.core.repo import GateConfig, RepoConfig
from gate.daemon import DaemonClient
from gate.gatekeeper import RepoGatekeeper, host_paths
from gate.guard import Guard
from gate.health import SOCKET_NAME, health
from gate.limits import Limits
from gate.metrics import GateMetrics
from gate.ports import RepoEndpoint
from gate.projections import Projections
from gate.repos import RepoFiles
from gate.server import GateServer
from gate.state import MachineState
from gate.watcher import Stopped, Watcher
from grants.core.model import RepoGuid
from grants.store import GrantStore

_log = logging.getLogger(__name__)

POLL_S = 0.25

MEMORY = "runs.json"
"""In a repo's private directory: what its watcher has seen lawful."""


async def serve(
    layout: Layout, *, clock: Clock | None = None, on_ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until cancelled; then open requests get the grace time, and every socket is gone.

    Args:
        layout: the machine.
        clock: tells the time.
        on_ready: called once, when every repo that can be served is.

    Raises:
        RefusedError: another gate serves this root.
        RdcError: the configuration cannot be read, or `run/rediacc` not written.
    """
    _raise_descriptor_limit()
    make_directory(layout.run_dir)
    with held(layout.run_dir / "gate.lock", f"a gate on root {layout.root}"):
        config = RepoFiles(layout).gate_config()
        gate = _Gate(layout, config, clock or SystemClock())
        try:
            await gate.follow()
            async with health(layout.run_dir / SOCKET_NAME, gate):
                on_ready()
                while True:
                    await asyncio.sleep(POLL_S)
                    await gate.follow()
        finally:
            await gate.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Serving:
    """A repo that is served. When anything here but the policy changes, it is served anew."""

    endpoint: RepoEndpoint
    keeper: RepoGatekeeper
    daemon: DaemonClient
    guard: Guard
    watcher: Watcher
    watching: asyncio.Task[None]


class _Gate:
    """What is served now, and why what should be is not."""

    def __init__(self, layout: Layout, config: GateConfig, clock: Clock) -> None:
        probe = SystemProbe()
        store = GrantStore(layout, clock)
        spec_dirs = tuple(map(Path, config.cdi_spec_dirs)) or (layout.cdi_spec_dir,)
        self._layout = layout
        self._clock = clock
        self._files = RepoFiles(layout)
        self._config = config
        self._server = GateServer(limits=_limits(config))
        self._state = MachineState(store, spec_dirs, probe, clock)
        self._projections = Projections(layout, self._state, probe, clock)
        self._serving: dict[str, _Serving] = {}
        self._seen: object = None
        self._problems: dict[str, str] = {}
        self._audit = AuditWriter.of(layout, clock)
        self._audit.start()

    async def follow(self) -> None:
        """Bring what is served and what the daemons can resolve up to date.

        Never raises: whatever fails is a problem that is told, and the next turn tries again. A gate that
        ended here would end for every repo, for the want of a file descriptor that one of them used up.
        """
        await self._try("repos", self._follow_repos)
        await self._try("projections", self._follow_projections)

    async def _try(self, source: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except RdcError as exc:
            self._problem(source, exc.message)
        except Exception as exc:  # noqa: BLE001 - see `follow`
            self._problem(source, f"{source} cannot be followed now: {exc}")
        else:
            self._problems.pop(source, None)

    async def _follow_projections(self) -> None:
        await self._projections.follow(
            {RepoGuid(guid): serving.daemon for guid, serving in self._serving.items()}
        )
        snapshot = await self._state.current()
        for serving in self._serving.values():
            serving.watcher.notice(snapshot)

    def repos(self) -> Mapping[str, GateMetrics]:
        """The counters of each served repo, by name."""
        found = {serving.endpoint.name: self._server.metrics(guid) for guid, serving in self._serving.items()}
        return {name: metrics for name, metrics in found.items() if metrics is not None}

    def problems(self) -> tuple[str, ...]:
        """What is not served, and why."""
        barred = (serving.guard.problem for serving in self._serving.values())
        found = (*barred, self._state.failure, self._audit.failure and f"audit log: {self._audit.failure}")
        return (*self._problems.values(), *filter(None, found))

    async def close(self) -> None:
        """Stop serving."""
        await self._server.close()
        for serving in self._serving.values():
            await _end(serving)
        self._serving.clear()
        await self._audit.close()

    async def _follow_repos(self) -> None:
        seen = self._files.fingerprint()
        if seen == self._seen and not self._problems and all(map(self._server.listens, self._serving)):
            return
        listing = await asyncio.to_thread(self._files.list)
        wanted = {config.guid: config for config in listing.repos}
        broken = {path.stem for path in listing.problems}
        self._forget_problems({"repos", "projections", *wanted, *map(str, listing.problems)})
        for path, problem in listing.problems.items():
            self._problem(str(path), problem.message)
        for guid, serving in list(self._serving.items()):
            # A file that can no longer be read leaves its repo as it was: a slip must not cut tenants off.
            if guid not in wanted and serving.endpoint.name not in broken:
                await self._remove(guid)
        for config in wanted.values():
            await self._apply(config)
        self._seen = seen

    async def _apply(self, config: RepoConfig) -> None:
        """Serve the repo as configured."""
        try:
            endpoint = _endpoint(self._layout, config)
            serving = self._serving.get(config.guid)
            if serving is not None and serving.endpoint == endpoint:
                self._rename(serving, endpoint)
                serving.keeper.repo = config
                await self._keep_listening(config)
                serving.guard.configure(config)
                serving.watcher.configure(config)
            else:
                if serving is not None:
                    await self._remove(config.guid)
                await self._add(config, endpoint)
        except RdcError as exc:
            self._problem(config.guid, f"repo {config.name}: {exc.message}")
        else:
            self._problems.pop(config.guid, None)

    def _rename(self, serving: _Serving, endpoint: RepoEndpoint) -> None:
        """The repo goes by another name; nobody who uses it notices."""
        old = serving.endpoint.name
        if old != endpoint.name:
            self._server.rename(endpoint.guid, endpoint.name)
            self._serving[endpoint.guid] = replace(serving, endpoint=endpoint)
            _log.info("gate.repo_renamed repo=%s was=%s", endpoint.name, old)

    async def _keep_listening(self, config: RepoConfig) -> None:
        if self._server.listens(config.guid):
            return
        _make_directories(self._layout.repo(config.guid))
        await self._server.listen_again(config.guid)
        _log.warning("gate.socket_was_gone repo=%s", config.name)

    async def _add(self, config: RepoConfig, endpoint: RepoEndpoint) -> None:
        _make_directories(self._layout.repo(config.guid))
        daemon = DaemonClient(endpoint.upstream)
        host = host_paths(self._layout, self._config, config, endpoint.upstream)
        paths = self._layout.repo(config.guid)
        guard = Guard(config, daemon, endpoint.upstream, paths.cdi_spec_dir)
        keeper = RepoGatekeeper(config, host, self._state, daemon, guard)
        keeper.audit = self._audit
        watcher = Watcher(
            config,
            daemon,
            guard,
            self._state,
            clock=self._clock,
            memory=paths.private / MEMORY,
            on_stopped=partial(_stopped, self._audit, keeper),
        )
        await self._server.add_repo(endpoint, keeper)
        watching = asyncio.get_running_loop().create_task(watcher.run(), name=f"watch {config.name}")
        self._serving[config.guid] = _Serving(
            endpoint=endpoint, keeper=keeper, daemon=daemon, guard=guard, watcher=watcher, watching=watching
        )
        _log.info("gate.repo_added repo=%s socket=%s", config.name, endpoint.socket)

    async def _remove(self, guid: str) -> None:
        serving = self._serving.pop(guid)
        await self._server.remove_repo(guid)
        await _end(serving)
        _log.info("gate.repo_removed repo=%s", serving.endpoint.name)

    def _problem(self, source: str, message: str) -> None:
        if self._problems.get(source) != message:
            self._problems[source] = message
            _log.error("gate.problem %s", message)

    def _forget_problems(self, still: set[str]) -> None:
        for source in self._problems.keys() - still:
            del self._problems[source]


async def _end(serving: _Serving) -> None:
    serving.watching.cancel()
    await asyncio.wait((serving.watching,))
    await serving.daemon.close()


def _stopped(audit: AuditWriter, keeper: RepoGatekeeper, stopped: Stopped) -> None:
    repo = keeper.repo
    _log.warning(
        "gate.stopped repo=%s container=%s name=%s devices=%s rule=%s",
        repo.name, stopped.container[:12], stopped.name, ",".join(stopped.devices) or "-",
        stopped.reason.rule.value,
    )  # fmt: skip
    rules = (stopped.reason.rule.value,)
    detail = f"stopped {stopped.name}: {stopped.reason.detail}"
    entry = audit.own(
        Event.CONTAINER_STOPPED, repo=repo, subject=stopped.container, rules=rules, detail=detail
    )
    audit.record(entry)


def _endpoint(layout: Layout, config: RepoConfig) -> RepoEndpoint:
    paths = layout.repo(config.guid)
    return RepoEndpoint(
        guid=config.guid,
        name=config.name,
        socket=paths.socket,
        gid=None if config.socket_group is None else _gid(config.socket_group),
        upstream=paths.daemon_socket if config.managed else Path(config.upstream),
    )


def _raise_descriptor_limit() -> None:
    """As many descriptors as there may be: the usual soft limit of 1024 is half of one repo's clients."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _gid(group: str) -> int:
    if group.isascii() and group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as exc:
        raise RdcError(f"there is no group {group!r}", hint=f"make it: groupadd {group}") from exc


def _make_directories(paths: RepoPaths) -> None:
    make_directory(paths.directory)
    make_directory(paths.private, mode=0o700)


def _limits(config: GateConfig) -> Limits:
    given = {
        "connections": config.connections,
        "head_s": config.head_s,
        "body_s": config.body_s,
        "inspected_body_bytes": config.inspected_body_bytes,
    }
    return Limits(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
