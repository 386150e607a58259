"""One holder at a time, over all processes of the machine, freed by the kernel when a holder dies."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from base.errors import AccessError, UnreachableError

LOCK_MODE = 0o600
"""Who may open a lock file can hold the lock, even for reading (flock(2)), so nobody but its owner may."""


class LockTimeoutError(UnreachableError):
    """Somebody else kept the lock for longer than we wait."""

    code = "locked"
    http_status = 503


@contextlib.contextmanager
def locked(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Hold the lock file `path` (made when missing, its folder too; never removed) while the block runs.

    Raises:
        LockTimeoutError: not free within `timeout_s`; names the holder's process where it is known.
        AccessError: the file cannot be opened for writing, is a symlink, or is on a filesystem without flock.
    """
    lock = FileLock(
        str(path),
        timeout=timeout_s,
        mode=LOCK_MODE,
        thread_local=False,
        fallback_to_soft=False,
        poll_interval=0.01,
    )
    try:
        lock.acquire()
    except Timeout as exc:
        raise LockTimeoutError(
            f"{path} is held by {_holder(path)} for more than {timeout_s:g} s",
            hint="try again; if that process hangs, end it: the lock ends with it, the store stays whole",
        ) from exc
    except OSError as exc:
        raise AccessError(
            f"cannot lock {path}: {exc.strerror}", hint="it is written by root, on a local filesystem"
        ) from exc
    try:
        _note_holder(path)
        yield
    finally:
        lock.release()


def _note_holder(path: Path) -> None:
    """Leave our process id in the lock file: for messages only, so a failure is no matter."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{os.getpid()}\n".encode())
        finally:
            os.close(descriptor)


def _holder(path: Path) -> str:
    """The process that wrote the lock file last, if it still lives."""
    try:
        process = int(path.read_bytes()[:20])
        command = Path(f"/proc/{process}/comm").read_text(errors="replace").strip()
    except (OSError, ValueError):
        return "another process"
    return f"process {process} ({command})"
