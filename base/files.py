"""File writes that survive a crash at any instant, and reads that cannot fill the memory."""

import contextlib
import os
import re
import secrets
from pathlib import Path

from base.errors import AccessError, MalformedError, NotFoundError

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024


def write_atomic(
    path: Path, data: bytes, *, mode: int = 0o644, durable: bool = True, modified_ns: int | None = None
) -> None:
    """Replace `path` by a file that holds `data`: readers see the old file or the new one, whole.

    The temporary file lies in the same directory and is named `.<name>.<random>.tmp`, an ending that no
    reader of ours or of CDI's takes for a document.

    Args:
        path: the file to write; its directory exists.
        data: the whole new content.
        mode: permission bits of the new file.
        durable: also wait until file and directory entry are on disk (fsync).
        modified_ns: modification time in nanoseconds since 1970, where readers tell versions apart by it: the
            kernel's own stamps are several milliseconds coarse. None leaves it to the kernel.

    Raises:
        AccessError: the directory cannot be written.
        NotFoundError: the directory does not exist.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as exc:
        raise NotFoundError(f"directory {path.parent} does not exist") from exc
    except OSError as exc:
        raise AccessError(f"cannot write {path}: {exc.strerror}") from exc
    try:
        try:
            _write_all(descriptor, data)
            os.fchmod(descriptor, mode)
            if modified_ns is not None:
                os.utime(descriptor, ns=(modified_ns, modified_ns))
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    if durable:
        fsync_directory(path.parent)


def discard_unfinished(path: Path) -> None:
    """Remove what killed writers of `path` have left beside it; the caller sees that none is at work."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.tmp")
    try:
        found = [entry for entry in path.parent.iterdir() if pattern.fullmatch(entry.name)]
    except FileNotFoundError:
        return
    for entry in found:
        remove_durably(entry)


def remove_durably(path: Path) -> None:
    """Unlink `path` if it exists and wait until the directory knows."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Wait until the directory's entries are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: Path, *, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """The content of a file of at most `limit` bytes.

    Raises:
        NotFoundError: there is no such file.
        AccessError: it cannot be read, or is not a regular file.
        MalformedError: it is larger than `limit`.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except FileNotFoundError as exc:
        raise NotFoundError(f"{path} does not exist") from exc
    except OSError as exc:
        raise AccessError(f"cannot read {path}: {exc.strerror}") from exc
    if len(data) > limit:
        raise MalformedError(f"{path} is larger than {limit} bytes")
    return data


def make_directory(path: Path, *, mode: int = 0o755) -> None:
    """Make `path` (and its parents) with exactly `mode`; one that exists gets its mode set.

    Raises:
        AccessError: it cannot be made, or something else lies there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
    except PermissionError as exc:
        raise AccessError(f"cannot make directory {path}: {exc.strerror}", hint="run it as root") from exc
    except OSError as exc:
        raise AccessError(f"cannot make directory {path}: {exc.strerror}") from exc


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
