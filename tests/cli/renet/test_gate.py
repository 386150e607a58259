import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from base.layout import Layout

RENET = Path(sys.executable).parent / "renet"


def serve(root: Path, *, notify: Path | None = None) -> "subprocess.Popen[str]":
    environ = {**os.environ, "RDC_ROOT": str(root)}
    if notify is not None:
        environ["NOTIFY_SOCKET"] = str(notify)
    return subprocess.Popen([RENET, "gate", "serve"], env=environ, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_serves_and_ends_cleanly(short_dir: Path, number: signal.Signals) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(short_dir / "notify"))
        supervisor.settimeout(30)
        with serve(short_dir, notify=short_dir / "notify") as gate:
            try:
                assert supervisor.recv(64) == b"READY=1"
                assert Layout(short_dir).gate_socket.exists()
                gate.send_signal(number)
                assert supervisor.recv(64) == b"STOPPING=1"
                _, said = gate.communicate(timeout=30)
            finally:
                gate.kill()
        assert gate.returncode == 0
        assert "Traceback" not in said
        assert str(short_dir) in said


def test_a_second_gate_on_a_root_is_refused(short_dir: Path) -> None:
    with serve(short_dir) as first:
        try:
            assert first.stderr is not None
            while "serving" not in first.stderr.readline():
                assert first.poll() is None
            with serve(short_dir) as second:
                _, said = second.communicate(timeout=30)
            assert second.returncode == 3
            assert str(first.pid) in said
        finally:
            first.terminate()
            first.wait(30)


def test_a_configuration_that_cannot_be_read(short_dir: Path) -> None:
    (short_dir / "etc/rediacc").mkdir(parents=True)
    (short_dir / "etc/rediacc/gate.yaml").write_text("schema_version: 2\n")
    with serve(short_dir) as gate:
        _, said = gate.communicate(timeout=30)
    assert gate.returncode == 1
    assert "Traceback" not in said
    assert "gate.yaml" in said
