import socket
from pathlib import Path

import pytest

from base.notify import VARIABLE, notify


def test_the_supervisor_hears_it(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(short_dir / "n"))
        monkeypatch.setenv(VARIABLE, str(short_dir / "n"))
        assert notify("READY=1")
        assert supervisor.recv(64) == b"READY=1"


def test_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind("")  # the kernel chooses a name
        monkeypatch.setenv(VARIABLE, "@" + supervisor.getsockname()[1:].decode())
        assert notify("STOPPING=1")
        assert supervisor.recv(64) == b"STOPPING=1"


@pytest.mark.parametrize("address", [None, "", "relative", "/nowhere/at/all"])
def test_without_a_supervisor_nothing_happens(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if address is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, address)
    assert not notify("READY=1")
