"""Listening sockets: mode and group from the first moment, stale ones replaced, others left alone."""

import os
import socket
import stat
from pathlib import Path

import pytest

from base.errors import AccessError, NotFoundError, RefusedError, UsageError
from gate.listener import close_listener, open_listener, peer_of
from gate.ports import Peer


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = Path(os.path.realpath(f"/tmp/l{os.getpid()}-{os.urandom(3).hex()}"))
    path.mkdir()
    yield path  # type: ignore[misc]
    for child in path.iterdir():
        child.unlink()
    path.rmdir()


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_mode_and_group(directory: Path, mode: int, umask: int) -> None:
    path = directory / "docker.sock"
    before = os.umask(umask)
    try:
        sock = open_listener(path, mode=mode, gid=os.getgid())
    finally:
        os.umask(before)
    found = path.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (mode, os.getgid())
    assert connects(path)
    assert [child.name for child in directory.iterdir()] == ["docker.sock"]
    close_listener(path, sock, found.st_ino)
    assert list(directory.iterdir()) == []


def test_a_stale_socket_is_replaced(directory: Path) -> None:
    path = directory / "docker.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    sock = open_listener(path, mode=0o600, gid=None)
    assert connects(path)
    sock.close()


def test_a_live_socket_is_not_taken_over(directory: Path) -> None:
    path = directory / "docker.sock"
    first = open_listener(path, mode=0o600, gid=None)
    with pytest.raises(RefusedError):
        open_listener(path, mode=0o600, gid=None)
    assert connects(path)
    first.close()


def test_a_file_is_not_removed(directory: Path) -> None:
    path = directory / "docker.sock"
    path.write_text("precious")
    with pytest.raises(RefusedError):
        open_listener(path, mode=0o600, gid=None)
    assert path.read_text() == "precious"


def test_the_longest_path(directory: Path) -> None:
    room = 107 - len(os.fsencode(directory)) - 1
    sock = open_listener(directory / ("s" * room), mode=0o600, gid=None)
    assert connects(directory / ("s" * room))
    sock.close()
    with pytest.raises(UsageError):
        open_listener(directory / ("s" * (room + 1)), mode=0o600, gid=None)


def test_no_directory(directory: Path) -> None:
    with pytest.raises(NotFoundError):
        open_listener(directory / "none" / "docker.sock", mode=0o600, gid=None)


def test_a_path_through_a_file(directory: Path) -> None:
    (directory / "file").write_text("")
    with pytest.raises(AccessError):
        open_listener(directory / "file" / "docker.sock", mode=0o600, gid=None)


def test_closing_leaves_a_successor_s_socket(directory: Path) -> None:
    path = directory / "docker.sock"
    first = open_listener(path, mode=0o600, gid=None)
    inode = path.stat().st_ino
    first.close()
    second = open_listener(path, mode=0o600, gid=None)
    assert path.stat().st_ino != inode or path.exists()
    close_listener(path, first, -1)
    assert connects(path)
    second.close()


def test_who_connected() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_of(one) == Peer(pid=os.getpid(), uid=os.getuid(), gid=os.getgid())
    assert peer_of(one) == peer_of(None) == Peer(pid=-1, uid=-1, gid=-1)
