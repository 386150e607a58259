import os
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from base.layout import Layout
from base.run_lock import held
from cli.rdc import wait
from gate.core.repo import RepoConfig, RepoName
from machine.repos import up_lock
from tests.fake_daemon import fake_daemon

GUID = "6af613b6-569c-4c22-9c37-2ed93f31d3af"
PONG: tuple[int, object] = (200, b"OK")


@pytest.fixture
def layout(short_dir: Path) -> Layout:
    found = Layout(short_dir)
    found.repo(GUID).private.mkdir(parents=True)
    return found


def repo(upstream: str) -> RepoConfig:
    return RepoConfig(name=RepoName("a"), guid=GUID, upstream=upstream)


def test_without_a_gate_it_says_how_to_start_one(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    wait.wait_until_served(layout, repo("managed"))
    assert f"renet --root {layout.root} up" in capsys.readouterr().err
    wait.wait_until_served(layout, repo("/tmp/x.sock"))
    assert "gate serve" in capsys.readouterr().err
    wait.wait_until_served(Layout(Path("/nonexistent/..")), repo("managed"))
    assert capsys.readouterr().err


def test_a_gate_alone_does_not_start_daemons(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    with fake_daemon(layout.gate_socket, {}), fake_daemon(layout.repo(GUID).socket, {}):
        wait.wait_until_served(layout, repo("managed"))
    assert "up" in capsys.readouterr().err


def test_it_waits_for_gate_and_daemon(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    paths = layout.repo(GUID)
    with ExitStack() as stack:
        stack.enter_context(held(up_lock(layout), "up"))
        stack.enter_context(fake_daemon(layout.gate_socket, {}))
        gate = stack.enter_context(fake_daemon(paths.socket, {"GET /_ping": (502, b"")}))
        daemon = stack.enter_context(fake_daemon(paths.daemon_socket, {}))
        waiting = threading.Thread(target=wait.wait_until_served, args=(layout, repo("managed")))
        waiting.start()
        while not daemon.asked:
            os.sched_yield()
        daemon.answers["GET /_ping"] = PONG
        while not gate.asked:
            os.sched_yield()
        assert waiting.is_alive()
        gate.answers["GET /_ping"] = PONG
        waiting.join(30)
        assert not waiting.is_alive()
    assert capsys.readouterr().err == ""


def test_a_foreign_daemon_that_is_down_is_told_and_not_waited_for(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_daemon(layout.gate_socket, {}), fake_daemon(layout.repo(GUID).socket, {}):
        wait.wait_until_served(layout, repo(f"{layout.root}/none.sock"))
    assert "none.sock" in capsys.readouterr().err


def test_waiting_ends(
    layout: Layout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "TIMEOUT_S", 0.1)
    with fake_daemon(layout.gate_socket, {}):
        wait.wait_until_served(layout, repo("/tmp/x.sock"))
    assert "does not answer" in capsys.readouterr().err
