"""The program that gives a repo's daemon its own view of the machine, then becomes the daemon.

It runs alone, by `python -I -S`, with the standard library only: it starts with every daemon, and must not
depend on anything below a directory that it is about to change. `machine.view` says what it is told.

Source: mount_namespaces(7), open_tree(2), mount_setattr(2), move_mount(2), openat2(2); the system call
numbers are the same on every architecture that Docker runs on.
"""

# ruff: noqa: PTH103 - pathlib takes longer to start than everything here

import ctypes
import errno
import json
import os
import stat
import sys

_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
_CLONE_NEWNS = 0x0002_0000
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_FROM_AND_TO_DESCRIPTORS = 0x04 | 0x40
_RESOLVE_NO_SYMLINKS = 0x04
_ATTR_NODEV, _ATTR_NOSYMFOLLOW = 0x4, 0x0020_0000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_SLAVE = 4096, 16384, 1 << 18, 1 << 19

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def main(told: dict[str, object]) -> None:
    """Make the view, or add to that of a running process, and become `command` if there is one.

    Raises:
        OSError: with the path in question; nothing was started.
    """
    guards, own, hidden, command = (_texts(told[key]) for key in ("guards", "own", "hidden", "command"))
    enter, here = told["enter"], os.getcwd()  # noqa: PTH109 - no pathlib: it starts slowly
    if isinstance(enter, int):
        with open(f"/proc/{enter}/ns/mnt", "rb") as namespace:  # noqa: PTH123 - as above
            _done(_libc.setns(namespace.fileno(), _CLONE_NEWNS), f"/proc/{enter}/ns/mnt")
    else:
        _done(_libc.unshare(_CLONE_NEWNS), "the mount namespace")
        # What the operator mounts and unmounts later is followed; nothing of ours gets out.
        _mount(None, "/", None, _MS_REC | _MS_SLAVE)
    kept = [(path, _clone(_open(path))) for path in own]
    for path in guards:
        _guard(path)
    for path in hidden:
        _hide(path)
    for path, tree in kept:
        os.makedirs(path, mode=0o700, exist_ok=True)
        _attach(tree, path, _open(path))
    if command:
        os.chdir(here)  # where we stand is the directory from before the mounts
        os.execv(command[0], command)  # noqa: S606 - of an absolute path


def _guard(path: str) -> None:
    """Let nothing below a directory be reached by a symbolic link, and no device node there be opened."""
    target = _open(path, resolve=_RESOLVE_NO_SYMLINKS)
    tree = _clone(target)
    attributes = _MountAttributes(set=_ATTR_NOSYMFOLLOW | _ATTR_NODEV, propagation=_MS_PRIVATE)
    size = ctypes.sizeof(attributes)
    _call(path, _MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, ctypes.byref(attributes), size)
    _attach(tree, path, target)


def _hide(path: str) -> None:
    """Put an empty directory over a directory, and /dev/null over anything else that is there.

    The directory can be written: containerd puts the sockets of its shims below /run/containerd, wherever its
    own state lies.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - as above
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"mode=0755,size=1m")
    else:
        _mount("/dev/null", path, None, _MS_BIND)


def _open(path: str, *, resolve: int = 0) -> int:
    how = _OpenHow(flags=os.O_PATH | os.O_CLOEXEC, resolve=resolve)
    return _call(path, _OPENAT2, _AT_FDCWD, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))


def _clone(descriptor: int) -> int:
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE
    return _call("a copy of a mount", _OPEN_TREE, descriptor, b"", flags)


def _attach(tree: int, path: str, target: int) -> None:
    _call(path, _MOVE_MOUNT, tree, b"", target, b"", _MOVE_FROM_AND_TO_DESCRIPTORS)
    os.close(tree)
    os.close(target)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: bytes | None = None) -> None:
    encoded = [None if each is None else os.fsencode(each) for each in (source, target, kind)]
    _done(_libc.mount(*encoded, ctypes.c_ulong(flags), data), target)


def _call(path: str, *arguments: object) -> int:
    result = int(_libc.syscall(*arguments))
    _done(result, path)
    return result


def _done(result: int, path: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except OSError as exc:
        why = "Linux 5.12 or newer is needed" if exc.errno == errno.ENOSYS else exc.strerror
        sys.exit(f"cannot set up what the daemon sees of the machine: {exc.filename}: {why}")
