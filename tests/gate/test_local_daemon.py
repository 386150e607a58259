import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate.core.daemon_process import DaemonProcess
from gate.local_daemon import daemon_process, empty_spec_dirs, open_to_everyone, resolved

LISTEN = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[-1])
s.listen()
print(flush=True)
input()
"""


@pytest.fixture
def listening(short_dir: Path) -> Iterator[Path]:
    """Something called dockerd that listens, with a configuration and a PATH of its own."""
    tools = short_dir / "bin"
    tools.mkdir()
    (tools / "nvidia-container-runtime-hook").touch()
    config = short_dir / "d.json"
    config.write_text('{"builder": {"entitlements": {"device": true}}}')
    path = short_dir / "d.sock"
    process = subprocess.Popen(
        ["dockerd", "-c", LISTEN, "--config-file", str(config), "-H", "tcp://0.0.0.0:2375", str(path)],
        executable=sys.executable,
        env={"PATH": f"relative:{tools}", "PYTHONHOME": sys.base_prefix},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield path
    process.communicate()


def test_how_the_one_who_listens_was_started(listening: Path) -> None:
    assert daemon_process(listening) == DaemonProcess(
        hosts=("tcp://0.0.0.0:2375",),
        hooks=("nvidia-container-runtime-hook",),
        entitlements={"device": True},
    )


def test_of_anyone_else_nothing_is_told(short_dir: Path) -> None:
    assert daemon_process(short_dir / "absent") is None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "s"))
        listener.listen()
        assert daemon_process(short_dir / "s") is None, "this is no dockerd"


def test_a_socket_is_open_when_everyone_may_get_there(short_dir: Path) -> None:
    path = short_dir / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        short_dir.chmod(0o755)
        assert open_to_everyone(path)
        short_dir.chmod(0o700)
        assert not open_to_everyone(path)
        short_dir.chmod(0o755)
        path.chmod(0o660)
        assert not open_to_everyone(path)
        assert not open_to_everyone(short_dir / "absent")


def test_links_are_followed(short_dir: Path) -> None:
    (short_dir / "link").symlink_to(short_dir / "real")
    link = str(short_dir / "link")
    assert resolved([link, 7, "a\0b"]) == {link: os.path.realpath(short_dir / "real")}
    assert resolved(None) == {}


def test_directories_without_specs_are_empty_to_the_daemon(listening: Path, short_dir: Path) -> None:
    full, notes, absent = short_dir / "full", short_dir / "notes", short_dir / "absent"
    full.mkdir()
    (full / "a.yaml").touch()
    notes.mkdir()
    (notes / "README.md").touch()
    listed = [str(full), str(notes), str(absent), "relative", 5]
    assert empty_spec_dirs(listening, listed) == {str(notes), str(absent)}
    assert empty_spec_dirs(short_dir / "nobody.sock", listed) == frozenset()
    assert empty_spec_dirs(listening, None) == frozenset()
