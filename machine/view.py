"""What a repo's daemon sees of the machine: its own directories, and bind roots without symbolic links.

Each managed daemon has a mount namespace of its own, with everything that it starts. In it no path below a
bind root leads through a symbolic link, so that nobody who can write there can turn a bind into a bind of
something else between the gate's look and the daemon's mount. `view_child` makes it; here is what it is told.

Source: mount_namespaces(7), mount_setattr(2); facts page on gates, section 2.C.
"""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from base.errors import RefusedError, UnreachableError
from base.files import write_atomic
from base.mountinfo import MountEntry, covers, link_free, parse_mountinfo
from gate.core.hostpath import reserved_reason

HIDDEN = (
    "/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman", "/run/crio", "/run/buildkit",
    "/run/k3s", "/run/user", "/var/lib/docker", "/var/lib/containerd",
)  # fmt: skip
"""Where other container engines of the machine listen and keep their things; /run/user has rootless ones."""

_PROC = Path("/proc")
_PYTHON = os.path.realpath(sys.executable)
_WIDEN_S = 20
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Absolute host paths. No link is followed below `guards`; of what is `hidden`, `own` can be seen."""

    guards: tuple[str, ...]
    own: tuple[str, ...]
    hidden: tuple[str, ...]


def guards(roots: Iterable[str]) -> tuple[str, ...]:
    """The directories below which no link may be followed, so that no bind below these roots leads elsewhere.

    A root that only root can exchange guards itself; else it is the topmost directory on the way to it that
    somebody else can write to. A root that does not exist, or leads where no bind may go, has none: the gate
    admits nothing there.

    Raises:
        RefusedError: the machine's root directory itself can be written by others than root.
    """
    found: list[str] = []
    for root in roots:
        real = os.path.realpath(root)
        if reserved_reason(real) is None:
            found.append(_guard(real))
    found = [each for each in found if os.path.lexists(each)]
    return tuple(
        one for one in sorted(set(found)) if not any(covers(each, one) for each in found if each != one)
    )


def _guard(real: str) -> str:
    path = Path(real)
    for parent, child in zip(reversed(path.parents), (*list(reversed(path.parents))[1:], path), strict=True):
        if not _only_root_exchanges(parent, child):
            if str(parent) == "/":
                raise RefusedError(
                    f"bind root {real} cannot be made safe: others than root can write to /",
                    hint="'chown root:root / && chmod go-w /'",
                )
            return str(parent)
    return real


def _only_root_exchanges(parent: Path, child: Path) -> bool:
    """Whether nobody but root can put something else in the place of `child`, which need not exist."""
    try:
        above = parent.lstat()
        if above.st_uid != 0 or not above.st_mode & _OTHERS_WRITE:
            return above.st_uid == 0
        return bool(above.st_mode & stat.S_ISVTX) and child.lstat().st_uid == 0
    except OSError:
        return not os.path.lexists(parent)


def launch(view: View, command: Sequence[str]) -> tuple[str, ...]:
    """The command line that makes the view and becomes `command`, whose first word is an absolute path."""
    return _child(view, enter=None, command=command)


def widen(pid: int, view: View) -> None:
    """Add the guards of `view` to what a running daemon sees.

    Raises:
        UnreachableError: that cannot be done.
    """
    try:
        done = subprocess.run(
            _child(view, enter=pid, command=()),
            env={}, capture_output=True, text=True, check=False, timeout=_WIDEN_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as exc:
        raise UnreachableError(f"cannot change what process {pid} sees of the machine: {exc}") from exc
    if done.returncode != 0:
        raise UnreachableError(done.stderr.strip().rpartition("\n")[2])


def sees(pid: int, view: View) -> bool:
    """Whether a process was started in such a view, whatever its guards are."""
    try:
        points = {mount.point for mount in _mounts(pid)}
    except UnreachableError:
        return False
    return points.issuperset(map(os.path.realpath, view.own))


def unguarded(pid: int, wanted: Iterable[str]) -> tuple[str, ...]:
    """Those of these guards that a process does not have.

    Raises:
        UnreachableError: its mounts cannot be read.
    """
    mounts = _mounts(pid)
    return tuple(each for each in wanted if not link_free(each, mounts))


def wrap_runc(folder: Path, runc: Path) -> None:
    """Put into a daemon's PATH a `runc` that gives containers back the links in their binds."""
    words = (_PYTHON, "-I", "-S", str(_beside("runc_child.py")), str(runc))
    script = _WRAPPER.format(edited=_quoted(words), runc=_quoted((str(runc),)))
    write_atomic(folder / "runc", script.encode(), mode=0o755)


_WRAPPER = """\
#!/bin/sh
# Written by renet. What this daemon sees follows no symbolic links below bind roots; its containers do.
case " $* " in
*" create "*) exec {edited} "$@" ;;
esac
exec {runc} "$@"
"""


def _quoted(words: Iterable[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def _child(view: View, *, enter: int | None, command: Sequence[str]) -> tuple[str, ...]:
    told = {
        "guards": view.guards,
        "own": view.own,
        "hidden": view.hidden,
        "enter": enter,
        "command": tuple(command),
    }
    return (_PYTHON, "-I", "-S", str(_beside("view_child.py")), json.dumps(told))


def _beside(name: str) -> Path:
    return Path(__file__).resolve().with_name(name)


def _mounts(pid: int) -> tuple[MountEntry, ...]:
    try:
        return parse_mountinfo((_PROC / str(pid) / "mountinfo").read_bytes())
    except OSError as exc:
        raise UnreachableError(f"cannot read the mounts of process {pid}: {exc.strerror}") from exc
