import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from base.errors import UnreachableError
from machine.process import Process, children, command_line, kill_now, processes

SLEEP = ("sleep", "1000")


def spawn(tmp_path: Path, *command: str) -> Process:
    return Process.spawn(
        command, env={"PATH": os.environ["PATH"], "MARK": "ours"}, log=tmp_path / "log", cwd=tmp_path
    )


def test_a_child_is_started_ended_and_reaped(tmp_path: Path) -> None:
    process = spawn(tmp_path, *SLEEP)
    assert process.alive
    assert process.exit_words
    process.send(signal.SIGTERM)
    assert process.wait(10)
    assert not process.alive
    assert "SIGTERM" in process.exit_words
    assert not Path(f"/proc/{process.pid}").exists()
    process.send(signal.SIGTERM)
    process.close()
    process.close()


def test_output_is_appended_to_a_private_log_and_the_environment_is_the_given_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    process = spawn(tmp_path, "sh", "-c", "echo $MARK; pwd; env | wc -l; exit 3")
    assert process.wait(10)
    assert "exit code 3" in process.exit_words
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[:3] == ["before", "ours", str(tmp_path)]
    process.close()


def test_a_new_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    process = spawn(tmp_path, "true")
    process.wait(10)
    process.close()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError):
        spawn(tmp_path, str(tmp_path / "missing"))


def test_a_running_process_is_adopted_by_its_arguments(tmp_path: Path) -> None:
    child = spawn(tmp_path, *SLEEP)
    try:
        while command_line(child.pid) != SLEEP:  # between fork and exec it has none of its own
            time.sleep(0.01)
        adopted = Process.adopt(child.pid, ("anything", "1000"))
        assert adopted is not None
        assert adopted.alive
        adopted.send(signal.SIGKILL)
        assert adopted.wait(10)
        adopted.close()
        assert Process.adopt(child.pid, ("anything", "999")) is None
    finally:
        child.send(signal.SIGKILL)
        child.wait(10)
        child.close()


@pytest.mark.parametrize("pid", [-1, 0, 2**40])
def test_no_such_process_is_adopted(pid: int) -> None:
    assert Process.adopt(pid, SLEEP) is None


def test_processes_and_their_children_are_listed(tmp_path: Path) -> None:
    script = "import subprocess,sys; c=subprocess.Popen(['sleep','1000']); print(c.pid, flush=True); c.wait()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert children(parent.pid) == (child,)
            deadline_s = time.monotonic() + 10
            while not command_line(child) and time.monotonic() < deadline_s:
                time.sleep(0.001)  # the kernel tells of an exec a moment before it shows the words
            assert command_line(child) == SLEEP
            assert (child, SLEEP) in set(processes())
        finally:
            kill_now(child)
            parent.wait(10)
    kill_now(child)
    assert command_line(child) == ()
    assert children(parent.pid) == ()
