"""What is wrong with a machine's gate, repos, daemons, specs and grants, each with its fix."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from base.clock import Clock
from base.errors import NotFoundError, RdcError
from base.layout import Layout
from gate.core.preconditions import Observed, Weight, unmet
from gate.core.repo import RepoConfig
from gate.local_daemon import daemon_process, open_to_everyone, resolved
from gate.repos import RepoFiles
from grants.core.machine import GrantState
from grants.store import GrantStore
from machine.config import load_machine_config
from machine.core.findings import Finding, Level, error, warning
from machine.docker import Daemon
from machine.engine import find_engine
from machine.gpu import Gpu
from machine.inventory import load
from machine.provision import describe
from machine.repos import upstream_socket
from machine.spec_health import spec_faults
from machine.upkeep import access_findings, clock_findings, room_findings, socket_findings


def examine(layout: Layout, clock: Clock, repo: RepoConfig | None = None) -> tuple[Finding, ...]:
    """Everything that is wrong now, with the whole machine or with one repo. Nothing is changed.

    Raises:
        RdcError: the configuration cannot be read at all.
    """
    found = list(_gate(layout))
    if repo is not None:
        repos: tuple[RepoConfig, ...] = (repo,)
    else:
        listing = RepoFiles(layout).list()
        repos = tuple(listing.repos)
        found += [
            error("", "repo-file", f"{path}: {problem.message}", problem.hint)
            for path, problem in listing.problems.items()
        ]
    found += _specs(layout, clock)
    found += _engine(layout, repos)
    found += [*access_findings(layout), *room_findings(layout), *_hardware(layout)]
    for each in repos:
        found += _sockets(layout, each)
        found += _daemon(layout, each)
    try:
        table = GrantStore(layout, clock).read()
    except RdcError as exc:
        return (*found, error("", "grant-store", exc.message, exc.hint or "run it as root"))
    found += clock_findings(layout, table, clock)
    for each in repos:
        found += _grants(layout, clock, each)
    return tuple(found)


def _gate(layout: Layout) -> Iterator[Finding]:
    if not Daemon(layout.gate_socket).accepts():
        yield error("", "gate", "the gate does not run", "start it: 'renet up', or 'renet gate serve'")


def _specs(layout: Layout, clock: Clock) -> Iterator[Finding]:
    for path, messages in sorted(Gpu(layout, clock).catalog().errors.items()):
        yield error(
            "", "cdi-spec", f"{path}: {'; '.join(messages)}", f"'renet cdi validate {path}' shows where"
        )

    for fault in spec_faults(layout):
        yield (error if fault.blocks else warning)("", fault.code, fault.detail, fault.remedy)


def _hardware(layout: Layout) -> Iterator[Finding]:
    """The faults that setup found; a machine that was never set up by it has none to tell."""
    try:
        inventory = load(layout).inventory
    except NotFoundError:
        return
    except RdcError as exc:
        yield error("", "inventory", exc.message, exc.hint or "run 'renet setup'")
        return
    again = "then 'renet setup' looks again"
    nvidia = None if inventory.nvidia is None else inventory.nvidia.fault
    if nvidia is not None:
        yield error("", "nvidia-driver", nvidia.message, again)
    for card in inventory.gpus:
        if card.fault is not None and card.fault != nvidia:
            yield error("", "gpu-fault", f"{describe(card)}: {card.fault.message}", again)


def _engine(layout: Layout, repos: Sequence[RepoConfig]) -> Iterator[Finding]:
    """Whether there is an engine for the daemons that are kept here."""
    if any(each.managed for each in repos):
        try:
            directory = load_machine_config(layout).engine.dir
            find_engine(None if directory is None else Path(directory), os.environ)
        except RdcError as exc:
            yield error("", "engine", exc.message, exc.hint)


def _sockets(layout: Layout, repo: RepoConfig) -> Iterator[Finding]:
    paths = layout.repo(repo.guid)
    yield from socket_findings(repo.name, paths.socket, paths.private)
    if not Daemon(layout.repo(repo.guid).socket).accepts():
        detail = "its gate does not answer"
        yield error(repo.name, "gate-socket", detail, "look at the gate's log, and at /healthz of the gate")


def _daemon(layout: Layout, repo: RepoConfig) -> Iterator[Finding]:
    """The preconditions, looked at as the gate does."""
    socket, projection = upstream_socket(layout, repo), layout.repo(repo.guid).cdi_spec_dir
    daemon = Daemon(socket)
    try:
        info, version = daemon.document("/info"), daemon.document("/version")
    except RdcError as exc:
        start = "'renet up' keeps it" if repo.managed else "start it"
        yield error(repo.name, "daemon", exc.message, exc.hint or start)
        return
    observed = Observed(
        version=version,
        projection=frozenset({str(projection), str(projection.resolve())}),
        spec_dirs=resolved(info.get("CDISpecDirs")),
        process=daemon_process(socket),
        open_socket=open_to_everyone(Path(socket)),
    )
    for each in unmet(info, observed):
        bars = each.bars(repo.accept)
        accept = each.weight is Weight.REQUIRED and bars
        yield Finding(
            repo=repo.name,
            check=each.precondition.value,
            level=Level.ERROR if bars else Level.WARNING,
            detail=each.detail,
            remedy=each.remedy + (f", or accept it in repos/{repo.name}.yaml" if accept else ""),
        )


def _grants(layout: Layout, clock: Clock, repo: RepoConfig) -> Iterator[Finding]:
    for grant, status in Gpu(layout, clock).list(repo):
        again = f"rdc repo gpu grant {repo.name} --device {grant.device}"
        match status.state:
            case GrantState.LIVE:
                continue
            case GrantState.EXPIRED:
                remedy = f"'{again}' grants it again, 'rdc repo gpu revoke' takes it off the list"
                yield warning(repo.name, "grant-expired", f"{grant.device} {status.reason}", remedy)
            case GrantState.DRIFTED:
                remedy = f"'rdc repo gpu regrant {repo.name} --device {grant.device}' renews it knowingly"
                yield error(repo.name, "grant-drifted", f"{grant.device}: {status.reason}", remedy)
            case GrantState.UNRESOLVABLE:
                near = ", ".join(map(str, status.near))
                remedy = (
                    f"bring its spec back, or grant {near}" if near else "bring its spec back, or revoke it"
                )
                yield error(repo.name, "grant-unresolvable", f"{grant.device}: {status.reason}", remedy)
