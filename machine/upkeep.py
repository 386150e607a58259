"""What a machine needs so that grants end in time and are recorded: clock, room, files that are its own.

Source: adjtimex(2) for the kernel's word on its clock.
"""

import ctypes
import os
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from base.clock import Clock
from base.errors import RdcError
from base.layout import Layout
from gate.audit import AuditLog
from gate.repos import RepoFiles
from grants.core.model import format_instant
from grants.core.table import GrantTable
from machine.config import load_machine_config
from machine.core.findings import Finding, error, warning
from machine.journal import operator

FULL_BYTES, FULL_INODES = 32 * 1024 * 1024, 256
"""Below this a write may fail at any moment: an error."""
LOW_BYTES = 512 * 1024 * 1024
"""Below this it is a warning: one image of the size that GPU work uses takes more."""

_TOLERANCE = timedelta(seconds=2)
"""How far two processes' instants may seem to be out of order."""
_TIMEX_BYTES = 256
_TIME_ERROR = 5
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXO


def clock_findings(layout: Layout, table: GrantTable, clock: Clock) -> Iterator[Finding]:
    """A clock that went back, or that nobody sets while grants end by it."""
    now = clock.now()
    try:
        last = [each.entry.at for each in AuditLog(layout, clock, operator()).last(1)]
    except RdcError as exc:
        yield error("", "audit-log", exc.message, exc.hint or "run it as root")
        last = []
    latest = max([*last, *(grant.granted_at for grant in table)], default=now)
    if latest > now + _TOLERANCE:
        yield error(
            "",
            "clock",
            f"the clock says {format_instant(now)}, but something was recorded at {format_instant(latest)}:"
            " grants end later than they should",
            "set the clock: 'timedatectl set-ntp true'",
        )
    ends = [grant for grant in table if grant.expires_at is not None and grant.live(now)]
    if ends and not synchronised():
        yield warning(
            "",
            "clock",
            f"nothing keeps the clock right, and {len(ends)} grants end by it",
            "let a time service set it: 'timedatectl set-ntp true'",
        )


def synchronised() -> bool:
    """Whether the kernel takes its clock for right; True also where it does not tell."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)  # `modes` is 0: it only asks
    return int(ctypes.CDLL(None).adjtimex(timex)) != _TIME_ERROR


def room_findings(layout: Layout) -> Iterator[Finding]:
    """Too little room where grants, the audit log and the repos' data are written; each filesystem once."""
    seen: set[int] = set()
    for what, wanted in (
        ("grants", layout.grants.parent),
        ("the audit log", layout.audit_log.parent),
        ("the ledger and the repos' data", layout.state_dir),
        ("sockets and projections", layout.run_dir),
    ):
        folder = next(each for each in (wanted, *wanted.parents) if each.exists())
        device = folder.stat().st_dev
        if device not in seen:
            seen.add(device)
            found = os.statvfs(folder)
            inodes = found.f_favail if found.f_files else FULL_INODES
            yield from _room(what, folder, found.f_bavail * found.f_frsize, inodes)


def _room(what: str, folder: Path, free_bytes: int, inodes: int) -> Iterator[Finding]:
    left = f"{free_bytes // 2**20} MiB and {inodes} inodes" if inodes < FULL_INODES else (
        f"{free_bytes // 2**20} MiB"
    )  # fmt: skip
    if free_bytes < FULL_BYTES or inodes < FULL_INODES:
        detail = f"{left} are left at {folder}: {what} may not be written, and the gate then grants nothing"
        yield error("", "room", detail, f"make room on the filesystem of {folder}")
    elif free_bytes < LOW_BYTES:
        yield warning("", "room", f"{left} are left at {folder} for {what}", f"make room at {folder}")


def access_findings(layout: Layout) -> Iterator[Finding]:
    """Files that decide what repos may do and that others than root, or who runs this, may write."""
    repos = RepoFiles(layout)
    files = [layout.gate_config.parent, layout.gate_config, layout.repos_dir]
    files += [repos.path(name) for name in repos.names()]
    for folder in load_machine_config(layout).cdi_spec_dirs:
        files += [folder, *(sorted(folder.iterdir()) if folder.is_dir() else ())]
    for path in files:
        problem = _written_by_others(path)
        if problem:
            yield error(
                "", "file-access", f"{path} {problem}: they decide what repos may use",
                f"look through it, then 'chown root {path}' and 'chmod go-w {path}'",
            )  # fmt: skip


def _written_by_others(path: Path) -> str:
    try:
        seen = path.stat()
    except OSError:
        return ""
    if seen.st_uid not in {0, os.geteuid()}:
        return f"belongs to user {seen.st_uid}"
    return (
        f"may be written by others (mode {stat.S_IMODE(seen.st_mode):04o})"
        if seen.st_mode & _OTHERS_WRITE
        else ""
    )


def socket_findings(name: str, socket: Path, private: Path) -> Iterator[Finding]:
    """A repo's socket that everybody may use, or a way past the gate that others than its daemon may go."""
    for path, forbidden, check in (
        (socket, _OTHERS, "socket-access"),
        (private, stat.S_IRWXG | _OTHERS, "private-access"),
    ):
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & forbidden:
            detail = f"{path} is open to others than it should be (mode {mode:04o})"
            yield error(name, check, detail, f"'chmod {mode & ~forbidden:04o} {path}'")
