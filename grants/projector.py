"""The projection: one repo's own spec directory, which holds exactly its live grants.

The repo's daemon reads no other specs, so that it cannot resolve an ungranted device even if nobody asked the
gate. The daemon watches the directory while we write: files appear and change by rename only, what takes
devices away comes before what brings them, and bytes that one of the daemon's CDI libraries would refuse, or
crash on, are never put there. Source: design sections 4, 5 and 10; the directory rules are those of CDI's
`pkg/cdi/cache.go` (files ending in `.json` or `.yaml`, no sub-directories).
"""

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from base.clock import Clock
from base.errors import AccessError, MalformedError, RdcError
from base.files import make_directory, write_atomic
from base.layout import Layout
from cdi.core.catalog import Catalog
from cdi.core.library import Library
from cdi.core.names import QualifiedName
from cdi.core.projection import project
from cdi.core.resolve import Probe
from cdi.core.spec import crashes_daemon, parse_spec
from cdi.directories import is_spec_name, read_spec_file
from grants.core.machine import GrantStatus, MachineView
from grants.core.model import RepoGuid
from grants.core.plan import Remove, Rename, SpecFile, Step, Write, plan
from grants.core.table import GrantTable
from grants.lock import locked

LOCK_TIMEOUT_S = 10.0
FILE_MODE = 0o644
DIRECTORY_MODE = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A granted device that the projection does not hold, and why.

    `status` is the grant's when it is not live; None when the device is live but cannot be written for the
    daemon's CDI library.
    """

    device: QualifiedName
    reason: str
    status: GrantStatus | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What the projection now holds and what it took.

    Args:
        directory: the repo's spec directory.
        devices: names that the daemon can resolve, in order.
        left_out: granted names that it cannot, in order.
        written: names of files that are new or have changed, in order.
        removed: names of files that are gone, in order. Both are empty when the projection was right already.
    """

    directory: Path
    devices: tuple[QualifiedName, ...]
    left_out: tuple[LeftOut, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]


def sync_projection(
    layout: Layout,
    repo: RepoGuid,
    *,
    load_table: Callable[[], GrantTable],
    load_catalog: Callable[[], Catalog],
    probe: Probe,
    clock: Clock,
    libraries: Sequence[Library],
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> SyncReport:
    """Make the repo's spec directory hold exactly its live, undrifted grants.

    Grants and specs are read under the directory's lock: of two callers at once, the later one writes what it
    read after the other was done, so that old grants never come back over newer ones. When a device stays
    granted its file is replaced in one step; only one that goes from one source spec's file to another's
    while both stay is missing for the moment between two renames.

    Args:
        layout: where the directory lies; it is made when missing (0755).
        repo: whose.
        load_table: reads the store as it is now; a cached table is fine if it is known to be current.
        load_catalog: likewise the machine's specs.
        probe: looks at device nodes.
        clock: tells which grants have ended.
        libraries: of the daemons that may read the directory, usually one (`library_of_engine`); every file
            must load in each of them.
        lock_timeout_s: how long to wait for another caller.

    Raises:
        RdcError: grants or specs cannot be read, or the directory cannot be written. What could not be read
            is not guessed: the projection stays as it was.
    """
    directory = layout.repo(repo).cdi_spec_dir
    _make_directory(directory)
    try:
        with locked(directory.with_name(directory.name + ".lock"), timeout_s=lock_timeout_s):
            machine = MachineView(load_catalog(), probe)
            wanted, left_out = _wanted(load_table(), repo, machine, clock.now(), libraries)
            present = dict(_present(directory, wanted, libraries))
            steps = plan(present, wanted)
            for step in steps:
                _take(directory, step)
    except OSError as exc:
        raise AccessError(f"cannot write the projection {directory}: {exc.strerror}") from exc
    devices = (name for file in wanted.values() for name in file.devices)
    return SyncReport(
        directory=directory,
        devices=tuple(sorted(devices)),
        left_out=left_out,
        written=tuple(sorted(name for name in wanted if present.get(name) != wanted[name])),
        removed=tuple(sorted(present.keys() - wanted.keys())),
    )


def _wanted(
    table: GrantTable, repo: RepoGuid, machine: MachineView, now: datetime, libraries: Sequence[Library]
) -> tuple[Mapping[str, SpecFile], tuple[LeftOut, ...]]:
    """The files that should be there, and which granted devices are in none of them."""
    live: list[QualifiedName] = []
    left_out: list[LeftOut] = []
    for grant in table.of_repo(repo):
        status = machine.status(grant, now)
        if status.live:
            live.append(grant.device)
        else:
            left_out.append(LeftOut(device=grant.device, reason=status.reason, status=status))
    projection = project(machine.catalog, live, libraries=libraries)
    reasons = dict(projection.left_out)
    files: dict[str, SpecFile] = {}
    for name, content in projection.items():
        devices = _devices_of(content, libraries)
        fault = _fault(content, devices - set(live), libraries)
        if fault is None:
            files[name] = SpecFile(content=content, devices=devices)
        else:
            reasons.update(dict.fromkeys(devices & set(live), fault))
    left_out += [LeftOut(device=name, reason=reason, status=None) for name, reason in reasons.items()]
    return files, tuple(sorted(left_out, key=lambda each: each.device))


def _fault(content: bytes, ungranted: Collection[QualifiedName], libraries: Sequence[Library]) -> str | None:
    """Why these bytes may not be put where a daemon reads them, or None.

    `project` vouches for the same. This is the last look before the rename, because one bad file ends a
    daemon.
    """
    if ungranted:
        return f"the file would define {', '.join(map(str, sorted(ungranted)))}, which is not granted"
    crashes = crashes_daemon(content)
    if crashes:
        return f"the file would crash the daemon: {crashes[0].message}"
    for library in libraries:
        try:
            parse_spec(content, library=library)
        except MalformedError as exc:
            return f"CDI library {library} ({library.engine}) cannot load it: {exc.message}"
    return None


def _present(
    directory: Path, wanted: Mapping[str, SpecFile], libraries: Sequence[Library]
) -> Iterator[tuple[str, SpecFile]]:
    """Everything in the directory but sub-directories, which CDI does not read.

    Content counts only in a plain file with our mode; a link, which the daemon would not watch, or a file
    that others may write is not ours whatever it holds.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                continue
            try:
                content = read_spec_file(Path(entry.path))
            except RdcError:
                content = b""
            seen = entry.stat(follow_symlinks=False)
            ours = stat.S_ISREG(seen.st_mode) and stat.S_IMODE(seen.st_mode) == FILE_MODE
            right = wanted.get(entry.name)
            if ours and right is not None and right.content == content:
                yield entry.name, right
                continue
            devices = _devices_of(content, libraries) if is_spec_name(entry.name) else frozenset()
            yield entry.name, SpecFile(content=content if ours else None, devices=devices)


def _take(directory: Path, step: Step) -> None:
    match step:
        case Remove(name):
            (directory / name).unlink(missing_ok=True)
        case Write(name, content):
            write_atomic(directory / name, content, mode=FILE_MODE, durable=False)
        case Rename(name, to):
            (directory / name).replace(directory / to)


def _devices_of(content: bytes | None, libraries: Sequence[Library]) -> frozenset[QualifiedName]:
    """The names that a file defines for the first of the libraries that loads it; none when no one does."""
    for library in libraries if content else ():
        try:
            spec = parse_spec(content or b"", library=library)
        except MalformedError:
            continue
        return frozenset(map(spec.qualified, spec.devices))
    return frozenset()


def _make_directory(directory: Path) -> None:
    if directory.is_symlink():
        raise AccessError(
            f"{directory} is a symlink", hint="remove it; the daemon would not see changes behind it"
        )
    if not directory.is_dir() or stat.S_IMODE(directory.stat().st_mode) != DIRECTORY_MODE:
        make_directory(directory, mode=DIRECTORY_MODE)
