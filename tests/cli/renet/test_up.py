"""`renet up` as a process, with real daemons."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from base.layout import Layout
from tests.engine import IMAGE, Engine, newest
from tests.system.up_machine import BIN, UpMachine

DEVICE = "nvidia.com/gpu=0"


@pytest.fixture
def machine(short_dir: Path, engine28: Engine) -> Iterator[UpMachine]:
    found = UpMachine(short_dir, engine28)
    yield found
    found.close()


def test_the_whole_way_of_a_device(machine: UpMachine) -> None:
    """Repos come while it runs; a grant is in force at once; a revoke too; a delete leaves nothing."""
    machine.start()
    first, second = machine.create("a"), machine.create("b")
    assert (first["gate"], first["daemon"]) == ("answers", "answers")
    for repo in (first, second):
        machine.docker(repo).ok("import", str(newest().image_tar), IMAGE)
    run = ("run", "--rm", "--network", "none", "--device", DEVICE, IMAGE, "ls", "/dev/nvidia0")
    assert machine.docker(first).run(*run).returncode != 0
    granted = machine.rdc("repo", "gpu", "grant", "a", "--device", DEVICE, "-o", "json")
    assert json.loads(granted.stdout)[0]["resolvable"] is True
    assert machine.docker(first).ok(*run) == "/dev/nvidia0\n"
    assert "[grant-missing]" in machine.docker(second).run(*run).stderr
    assert machine.rdc("repo", "gpu", "revoke", "a", "--all").returncode == 0
    assert "[grant-missing]" in machine.docker(first).run(*run).stderr
    assert machine.rdc("repo", "delete", "a", "--yes").returncode == 0
    assert not Path(first["socket"]).parent.exists()
    assert len(machine.daemons()) == 1
    assert machine.stop() == 0
    assert machine.daemons() == []


def test_a_second_one_on_a_root_is_refused(machine: UpMachine) -> None:
    first = machine.start()
    done = subprocess.run(
        [BIN / "renet", "up"], env=machine.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert str(first.pid) in done.stderr


def test_a_killed_daemon_comes_back(machine: UpMachine) -> None:
    machine.rdc("repo", "create", "a")
    machine.start()
    (pid,) = machine.daemons()
    os.kill(pid, signal.SIGKILL)
    machine.until(lambda: machine.daemons() not in ([], [pid]))
    shown = lambda: json.loads(machine.rdc("repo", "show", "a", "-o", "json").stdout)  # noqa: E731
    machine.until(lambda: shown()["daemon"] == "answers")


def test_after_its_own_death_it_takes_the_daemons_back_with_their_containers(machine: UpMachine) -> None:
    up = machine.start()
    repo = machine.create("a")
    docker = machine.docker(repo)
    docker.ok("import", str(newest().image_tar), IMAGE)
    docker.ok(
        "run", "-d", "--name", "kept", "--network", "none", "--stop-signal", "KILL", IMAGE, "sleep", "1000"
    )
    pids = machine.daemons()
    up.kill()
    up.wait()
    machine.start()
    assert machine.daemons() == pids
    assert docker.ok("ps", "--format", "{{.Names}}") == "kept\n"


def test_a_typing_error_in_a_repos_file_stops_nobody(machine: UpMachine) -> None:
    machine.start()
    repo = machine.create("a")
    pids = machine.daemons()
    config = Path(repo["config"])
    good = config.read_text()
    config.write_text("name: [")
    machine.until(lambda: "gate.problem" in machine.log.read_text())
    time.sleep(1)
    assert machine.daemons() == pids
    config.write_text(good)
    assert machine.docker(repo).run("version").returncode == 0


def test_an_engine_that_is_missing_is_told_and_the_gate_serves_on(machine: UpMachine) -> None:
    config = Layout(machine.root).gate_config
    config.parent.mkdir(parents=True)
    config.write_text(f"schema_version: 1\nengine: {{dir: {machine.root}, storage_driver: no-such-driver}}\n")
    machine.rdc("repo", "create", "a")
    machine.start()
    assert "daemon.failed" in machine.log.read_text()
    assert machine.rdc("repo", "list").returncode == 0
