"""`renet up` as a process, with real daemons."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from base.layout import Layout
from machine.process import processes
from tests.engine import IMAGE, Docker, Engine, newest

BIN = Path(sys.executable).parent
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/zero"}]}}
    ],
}
DEVICE = "nvidia.com/gpu=0"


class Machine:
    """One root with `renet up`, and `rdc` on it."""

    def __init__(self, root: Path, engine: Engine) -> None:
        self.root = root
        self.environ = {**os.environ, "RDC_ROOT": str(root), "RDC_ENGINE_DIR": str(engine.bin_dir)}
        self.log = root / "up.log"
        self.up: subprocess.Popen[bytes] | None = None
        (root / "etc/cdi").mkdir(parents=True)
        (root / "etc/cdi/nvidia.json").write_text(json.dumps(SPEC))

    def start(self) -> "subprocess.Popen[bytes]":
        with self.log.open("wb") as log:
            self.up = subprocess.Popen([BIN / "renet", "up"], env=self.environ, stdout=log, stderr=log)
        self.until(lambda: "renet up: ready" in self.log.read_text())
        return self.up

    def until(self, condition: Callable[[], bool], timeout_s: float = 40) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.up is None or self.up.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def stop(self) -> int:
        assert self.up is not None
        self.up.terminate()
        code = self.up.wait(40)
        self.up = None
        return code

    def rdc(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [BIN / "rdc", *words], env=self.environ, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def create(self, name: str) -> dict[str, str]:
        done = self.rdc("repo", "create", name, "-o", "json")
        assert done.returncode == 0, done.stderr
        made: dict[str, str] = json.loads(done.stdout)
        return made

    def docker(self, repo: dict[str, str]) -> Docker:
        return Docker(f"unix://{repo['socket']}", newest())

    def daemons(self) -> list[int]:
        """Process ids of this root's dockerd."""
        return [
            pid
            for pid, words in processes()
            if words[1:2] == ("--config-file",) and words[2].startswith(f"{self.root}/")
        ]


@pytest.fixture
def machine(short_dir: Path, engine28: Engine) -> Iterator[Machine]:
    found = Machine(short_dir, engine28)
    yield found
    if found.up is not None:
        found.stop()
    for name in [row["name"] for row in json.loads(found.rdc("repo", "list", "-o", "json").stdout)]:
        found.rdc("repo", "delete", name, "--yes")
    assert found.daemons() == []


def test_the_whole_way_of_a_device(machine: Machine) -> None:
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


def test_a_second_one_on_a_root_is_refused(machine: Machine) -> None:
    first = machine.start()
    done = subprocess.run(
        [BIN / "renet", "up"], env=machine.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert str(first.pid) in done.stderr


def test_a_killed_daemon_comes_back(machine: Machine) -> None:
    machine.rdc("repo", "create", "a")
    machine.start()
    (pid,) = machine.daemons()
    os.kill(pid, signal.SIGKILL)
    machine.until(lambda: machine.daemons() not in ([], [pid]))
    shown = lambda: json.loads(machine.rdc("repo", "show", "a", "-o", "json").stdout)  # noqa: E731
    machine.until(lambda: shown()["daemon"] == "answers")


def test_after_its_own_death_it_takes_the_daemons_back_with_their_containers(machine: Machine) -> None:
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


def test_a_typing_error_in_a_repos_file_stops_nobody(machine: Machine) -> None:
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


def test_an_engine_that_is_missing_is_told_and_the_gate_serves_on(machine: Machine) -> None:
    config = Layout(machine.root).gate_config
    config.parent.mkdir(parents=True)
    config.write_text(f"schema_version: 1\nengine: {{dir: {machine.root}, storage_driver: no-such-driver}}\n")
    machine.rdc("repo", "create", "a")
    machine.start()
    assert "daemon.failed" in machine.log.read_text()
    assert machine.rdc("repo", "list").returncode == 0
