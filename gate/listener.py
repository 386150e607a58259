"""Unix sockets: listening with the right mode from the first moment, and who connected."""

import contextlib
import errno
import os
import secrets
import socket
import stat
import struct
from pathlib import Path

from base.errors import AccessError, NotFoundError, RefusedError, UsageError
from base.layout import UNIX_PATH_MAX
from gate.ports import Peer

_BACKLOG = 1024
_PROBE_S = 1.0
_CREDENTIALS = struct.Struct("3i")
_NOBODY = Peer(pid=-1, uid=-1, gid=-1)


def open_listener(path: Path, *, mode: int, gid: int | None) -> socket.socket:
    """A listening socket at `path` with exactly this mode and group; a stale one there is replaced.

    It is made under another name with mode 0600, given group and mode, and only then renamed into place.

    Raises:
        UsageError: the path is longer than a unix socket's may be.
        RefusedError: something that is no socket lies there, or another process listens on it.
        NotFoundError: the directory does not exist.
        AccessError: the directory cannot be written, or the group cannot be set.
    """
    if len(os.fsencode(path)) > UNIX_PATH_MAX:
        raise UsageError(
            f"the socket path {path} is longer than {UNIX_PATH_MAX} bytes", hint="use a shorter --root"
        )
    _check_free(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        _bind(sock, path, mode, gid)
    except FileNotFoundError as exc:
        sock.close()
        raise NotFoundError(f"directory {path.parent} does not exist") from exc
    except OSError as exc:
        sock.close()
        raise AccessError(f"cannot listen on {path}: {exc.strerror}") from exc
    except BaseException:
        sock.close()
        raise
    return sock


def close_listener(path: Path, sock: socket.socket, inode: int | None) -> None:
    """Stop listening, and unlink `path` where it is still the socket with this inode."""
    with contextlib.suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()
    sock.close()


def peer_of(sock: socket.socket | None) -> Peer:
    """Who connected, as the kernel saw it then (`SO_PEERCRED`, unix(7)); -1 where it cannot tell."""
    if sock is None:
        return _NOBODY
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return _NOBODY
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(pid=pid, uid=uid, gid=gid)


def _bind(sock: socket.socket, path: Path, mode: int, gid: int | None) -> None:
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    name = f".{secrets.token_hex(6)}.sock"
    try:
        os.fchmod(sock.fileno(), 0o600)  # Linux gives the name the socket's own mode, so no umask is needed
        sock.bind(f"/proc/self/fd/{directory}/{name}")  # short, whatever the directory
        try:
            if gid is not None:
                os.chown(name, -1, gid, dir_fd=directory)
            os.chmod(name, mode, dir_fd=directory)
            sock.listen(_BACKLOG)
            os.rename(name, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(name, dir_fd=directory)
            raise
    finally:
        os.close(directory)


def _check_free(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as exc:
        raise AccessError(f"cannot look at {path}: {exc.strerror}") from exc
    if not stat.S_ISSOCK(found.st_mode):
        raise RefusedError(f"{path} exists and is not a socket", hint="remove it, or choose another --root")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(_PROBE_S)
        error = probe.connect_ex(os.fspath(path))
    if error not in (errno.ECONNREFUSED, errno.ENOENT):
        raise RefusedError(
            f"another process listens on {path}",
            hint="stop the other gate first: 'renet gate serve' runs once",
        )
