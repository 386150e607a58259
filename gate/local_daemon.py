"""What can be read of a daemon that runs on this machine: who listens on its socket, and how it was started.

Source: unix(7), `SO_PEERCRED` names the process that called listen(2); proc(5). Whatever cannot be read is
left out: a daemon whose process is hidden, or for which systemd listens, is judged by its API alone.
"""

import os
import socket
import stat
import struct
from collections.abc import Mapping
from pathlib import Path

from base.errors import RdcError, UnreachableError
from base.files import read_bytes
from base.mountinfo import MountEntry, parse_mountinfo
from cdi.directories import is_spec_name
from gate.core.daemon_process import DEVICE_HOOKS, DaemonProcess, config_file

_CREDENTIALS = struct.Struct("3i")
_CONNECT_S = 2.0
_LIMIT_BYTES = 1024 * 1024


def daemon_process(path: Path) -> DaemonProcess | None:
    """The dockerd that listens on this socket; None when there is none, or it cannot be looked at. Blocks."""
    pid = _listener(path)
    if pid <= 0:
        return None
    directory = Path("/proc") / str(pid)
    try:
        words = [each.decode(errors="replace") for each in _read(directory / "cmdline").split(b"\0") if each]
        variables = dict(
            part.partition("=")[::2]
            for part in _read(directory / "environ").decode(errors="replace").split("\0")
        )
    except OSError:
        return None
    if not words or os.path.basename(words[0]) != "dockerd":  # noqa: PTH119 - a word, not a file of ours
        return None
    return DaemonProcess.of(
        words, _configuration(directory / "root", config_file(words)), _hooks(directory / "root", variables)
    )


def open_to_everyone(path: Path) -> bool:
    """Whether any user may connect: the socket is writable for others, and so is the way to it."""
    try:
        real = path.resolve(strict=True)
        if not real.stat().st_mode & stat.S_IWOTH:
            return False
        return all(each.stat().st_mode & stat.S_IXOTH for each in real.parents)
    except OSError:
        return False


def empty_spec_dirs(path: Path, directories: object) -> frozenset[str]:
    """Those of these directories in which the daemon that listens on `path` finds no spec file. Blocks.

    Looked at as the daemon sees them, below its own root; none where its process cannot be found. Root alone
    could fill one between two looks.
    """
    listed = [each for each in directories if isinstance(each, str)] if isinstance(directories, list) else []
    pid = _listener(path)
    if pid <= 0:
        return frozenset()
    root = Path("/proc") / str(pid) / "root"
    return frozenset(each for each in listed if each.startswith("/") and _no_spec(root / each.lstrip("/")))


def daemon_mounts(path: Path) -> tuple[MountEntry, ...]:
    """The mounts that the daemon which listens on `path` sees. Blocks.

    Raises:
        UnreachableError: its process cannot be found or looked at.
    """
    pid = _listener(path)
    try:
        if pid > 0:
            return parse_mountinfo((Path("/proc") / str(pid) / "mountinfo").read_bytes())
    except OSError as exc:
        raise UnreachableError(f"cannot read the mounts of the daemon on {path}: {exc.strerror}") from exc
    raise UnreachableError(f"cannot find the process of the daemon on {path}")


def _no_spec(directory: Path) -> bool:
    try:
        with os.scandir(directory) as entries:
            return not any(is_spec_name(entry.name) for entry in entries)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def resolved(directories: object) -> Mapping[str, str]:
    """Each of these paths with links followed, by its own spelling."""
    listed = directories if isinstance(directories, list) else []
    return {each: os.path.realpath(each) for each in listed if isinstance(each, str) and "\0" not in each}


def _listener(path: Path) -> int:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as link:
            link.settimeout(_CONNECT_S)
            link.connect(os.fspath(path))
            raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return 0
    return int(_CREDENTIALS.unpack(raw)[0])


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(_LIMIT_BYTES)


def _configuration(root: Path, name: str) -> bytes | None:
    """Its configuration file below its own root; empty when there is none, None when it is unreadable."""
    path = root / name.lstrip("/") if name.startswith("/") else None
    if path is None:
        return None
    try:
        return b"" if not path.exists() else read_bytes(path, limit=_LIMIT_BYTES)
    except (RdcError, OSError):
        return None


def _hooks(root: Path, variables: Mapping[str, str]) -> tuple[str, ...]:
    folders = [part for part in variables.get("PATH", "").split(":") if part.startswith("/")]
    return tuple(
        hook for hook in DEVICE_HOOKS if any((root / part.lstrip("/") / hook).exists() for part in folders)
    )
