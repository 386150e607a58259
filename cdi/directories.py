"""Spec directories on disk: which files count, reading them safely, and noticing that they changed.

Source: the Go library's directory scan: files that end in exactly `.json` or `.yaml` (dotfiles too), in name
order, without sub-directories; symbolic links to files are followed, a directory that is one itself is not
read.
"""

import errno
import os
import stat
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

from base.errors import AccessError, MalformedError, NotFoundError, RdcError
from cdi.core.catalog import Catalog, SpecFile
from cdi.core.library import Library
from cdi.core.spec import SpecError, parse_spec
from cdi.core.yaml_nodes import MAX_BYTES

SPEC_SUFFIXES = (".json", ".yaml")


def is_spec_name(name: str) -> bool:
    """Whether the library reads a file of this name; `.yml` and `.YAML` it does not."""
    return name.endswith(SPEC_SUFFIXES)


def read_spec_file(path: Path) -> bytes:
    """The bytes of a regular file of at most 32 MiB; never waits, as opening a FIFO would.

    Raises:
        NotFoundError: nothing lies there.
        AccessError: it cannot be read, or is no regular file.
        MalformedError: it is larger.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError as exc:
        raise NotFoundError(f"{path} does not exist") from exc
    except (OSError, ValueError) as exc:
        raise AccessError(f"cannot read {path}: {_reason(exc)}") from exc
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise AccessError(f"{path} is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as exc:
        raise AccessError(f"cannot read {path}: {_reason(exc)}") from exc
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise MalformedError(f"{path} is larger than {MAX_BYTES} bytes")
    return data


def load_catalog(dirs: Sequence[Path], *, library: Library = Library.V1_0_1) -> Catalog:
    """The devices of these directories, the last of them with the highest precedence, by the library's rules.

    Never raises for what lies in them: a file that cannot be used is recorded under its path and the others
    count. A directory that does not exist holds nothing; one that cannot be read is recorded under its own
    path.
    """
    return Catalog.of(*load_files(dirs, library=library))


def load_files(
    dirs: Sequence[Path], *, library: Library = Library.V1_0_1
) -> tuple[tuple[SpecFile, ...], dict[str, list[str]]]:
    """The specs of these directories that load, in order, and by path why others do not; never raises."""
    files: list[SpecFile] = []
    errors: dict[str, list[str]] = {}
    for priority, directory in enumerate(dirs):
        try:
            names = _spec_names(directory)
        except RdcError as exc:
            errors.setdefault(str(directory), []).append(exc.message)
            continue
        for name in names:
            path = directory / name
            try:
                spec = parse_spec(read_spec_file(path), library=library)
            except SpecError as exc:
                errors.setdefault(str(path), []).extend(
                    f"failed to load CDI Spec: {problem}" for problem in exc.problems
                )
            except RdcError as exc:
                errors.setdefault(str(path), []).append(f"failed to load CDI Spec: {exc.message}")
            else:
                files.append(SpecFile(path=str(path), priority=priority, spec=spec))
    return tuple(files), errors


def _spec_names(directory: Path) -> list[str]:
    """The names that count in a directory, in the order of their bytes.

    Raises:
        AccessError: it cannot be listed, is no directory, or is a symbolic link.
    """
    try:
        if directory.is_symlink():
            raise AccessError(
                f"{directory} is a symbolic link, and CDI libraries do not follow one to a directory"
            )
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if is_spec_name(entry.name) and _may_be_spec(entry)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as exc:
        raise AccessError(f"cannot read directory {directory}: {_reason(exc)}") from exc
    return sorted(names, key=os.fsencode)


def _may_be_spec(entry: "os.DirEntry[str]") -> bool:
    return not entry.is_dir(follow_symlinks=False)


def fingerprint(dirs: Sequence[Path]) -> Hashable:
    """A value that differs whenever a file of these directories may have changed; one `stat` per file."""
    return tuple((str(directory), tuple(_stamps(directory))) for directory in dirs)


def _stamps(directory: Path) -> Iterator[Hashable]:
    try:
        names = _spec_names(directory)
    except RdcError as exc:
        yield exc.message
        return
    for name in names:
        path = directory / name
        try:
            link, target = path.lstat(), path.stat()
        except OSError as exc:
            yield name, exc.errno
            continue
        yield name, link.st_ino, link.st_ctime_ns, _stamp(target)


def _stamp(status: os.stat_result) -> Hashable:
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _reason(exc: Exception) -> str:
    if isinstance(exc, OSError):
        return (exc.strerror or errno.errorcode.get(exc.errno or 0, "error")).lower()
    return str(exc)
