"""A lock that a process holds for as long as it runs, and that others can look at.

The kernel frees it when the process ends, however it ends. Source: flock(2).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from base.errors import AccessError, RefusedError

_TEXT_LIMIT_BYTES = 32


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path`, whose directory exists; the file tells our process id.

    Args:
        path: the lock file; it stays behind, as removing it would let two processes hold it.
        what: what runs only once, for the message: `'renet up' on root /`.

    Raises:
        RefusedError: another process holds it.
        AccessError: the file cannot be opened.
    """
    descriptor = _open(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            pid = os.read(descriptor, _TEXT_LIMIT_BYTES).decode(errors="replace").strip()
            raise RefusedError(
                f"{what} runs already (process {pid or 'unknown'})",
                hint=f"stop it first ('kill {pid}')" if pid else "stop it first",
            ) from exc
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether some process holds the lock at `path` now.

    Raises:
        AccessError: the file is there and cannot be opened.
    """
    try:
        descriptor = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise AccessError(f"cannot open {path}: {exc.strerror}") from exc
