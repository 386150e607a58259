"""Starts that no request caused, before real daemons: what holds a device without a live grant ends."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine import IMAGE, Engine
from tests.system.conftest import REPO, Gated, start_gated
from tests.system.gate_machine import example_spec

GPU0 = ("--device", "nvidia.com/gpu=0")
DETACHED = ("run", "-d", "--network", "none", "--stop-signal", "KILL")
SLEEP = (IMAGE, "sleep", "600")
OTHER = "other.org/dev=0"
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def each_watched(each_engine: Engine) -> Iterator[Gated]:
    """A daemon that also reads specs from elsewhere, so that only the gate stands before those."""
    yield from start_gated(each_engine, more_specs=example_spec("0", kind="other.org/dev"))


@pytest.fixture
def watched(each_watched: Gated) -> Iterator[Gated]:
    each_watched.revoke_all()
    yield each_watched
    each_watched.revoke_all()
    for name in each_watched.raw.ok("ps", "-aq").split():
        each_watched.raw.run("rm", "-f", name)


def eventually(claim: Callable[[], bool], gated: Gated) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not claim():
        assert time.monotonic() < deadline, gated.machine.log.read_text()[-3000:]
        time.sleep(0.05)


def running(gated: Gated) -> set[str]:
    return set(gated.raw.ok("ps", "--format", "{{.Names}}").split())


def known(gated: Gated, name: str) -> bool:
    """Whether the watcher has seen this container run lawfully."""
    file = Path(gated.socket).parent / "private/runs.json"
    identity = gated.raw.ok("inspect", "-f", "{{.Id}}", name).strip()
    started_at = json.loads(gated.raw.ok("inspect", name))[0]["State"]["StartedAt"]
    return file.exists() and [identity, started_at] in [
        run[:2] for run in json.loads(file.read_text())["runs"]
    ]


def kill_gate(gated: Gated) -> None:
    os.kill(gated.machine.pid, signal.SIGKILL)
    gated.machine.stop()
    (gated.machine.root / "run/rediacc/gate.sock").unlink(missing_ok=True)


def start_gate(gated: Gated) -> None:
    gated.machine.start()
    gated.machine.wait_for_socket(gated.repo["socket"])


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        (("--device", OTHER), "grant-missing"),
        (("--device", "/dev/zero:/dev/nvidia0"), "raw-device"),
        (("--privileged",), "privileged"),
        (("--device-cgroup-rule", "c 195:* rwm"), "device-cgroup-rule"),
    ],
)
def test_what_is_started_on_the_raw_socket_ends(watched: Gated, how: tuple[str, ...], rule: str) -> None:
    watched.raw.ok(*DETACHED, "--name", "behind", "--restart", "always", *how, *SLEEP)
    eventually(lambda: "behind" not in running(watched), watched)
    eventually(lambda: "name=behind devices" in watched.machine.log.read_text(), watched)
    line = [each for each in watched.machine.log.read_text().splitlines() if "name=behind devices" in each][
        -1
    ]
    assert f"rule={rule}" in line


def test_a_container_without_devices_is_left_alone(watched: Gated) -> None:
    watched.raw.ok(*DETACHED, "--name", "plain", *SLEEP)
    watched.raw.ok(*DETACHED, "--name", "behind", "--privileged", *SLEEP)
    eventually(lambda: running(watched) == {"plain"}, watched)


def test_a_paused_holder_ends_too(watched: Gated) -> None:
    watched.machine.rdc("repo", "gpu", "grant", REPO, "--device", "nvidia.com/gpu=0", "--expires", "4s")
    watched.gate.ok(*DETACHED, "--name", "holder", *GPU0, *SLEEP)
    watched.gate.ok("pause", "holder")
    eventually(lambda: "holder" not in running(watched), watched)


def test_the_end_of_a_grant_ends_its_holder(watched: Gated) -> None:
    watched.machine.rdc("repo", "gpu", "grant", REPO, "--device", "nvidia.com/gpu=0", "--expires", "3s")
    watched.gate.ok(*DETACHED, "--name", "holder", "--restart", "always", *GPU0, *SLEEP)
    assert "holder" in running(watched)
    eventually(lambda: "holder" not in running(watched), watched)


def test_a_revoke_leaves_the_holder_and_ends_its_next_start(watched: Gated) -> None:
    watched.grant("nvidia.com/gpu=0")
    watched.gate.ok(*DETACHED, "--name", "holder", *GPU0, *SLEEP)
    eventually(lambda: known(watched, "holder"), watched)
    watched.revoke_all()
    watched.raw.ok(*DETACHED, "--name", "behind", "--privileged", *SLEEP)
    eventually(lambda: "behind" not in running(watched), watched)
    assert "holder" in running(watched)
    kill_gate(watched)
    start_gate(watched)
    watched.raw.ok("start", "behind")
    eventually(lambda: "behind" not in running(watched), watched)
    assert "holder" in running(watched), "a new gate knows what the old one saw"


def test_what_starts_while_the_gate_is_dead_is_caught_up_with(watched: Gated) -> None:
    watched.grant("nvidia.com/gpu=0")
    watched.gate.ok(*DETACHED, "--name", "holder", *GPU0, *SLEEP)
    eventually(lambda: known(watched, "holder"), watched)
    kill_gate(watched)
    watched.raw.ok(*DETACHED, "--name", "behind", "--device", OTHER, *SLEEP)
    watched.raw.ok(*DETACHED, "--name", "plain", *SLEEP)
    assert running(watched) == {"holder", "behind", "plain"}
    start_gate(watched)
    eventually(lambda: "behind" not in running(watched), watched)
    assert running(watched) == {"holder", "plain"}


def test_a_restart_policy_does_not_bring_a_revoked_device_back(watched: Gated) -> None:
    """Through the daemon's restart; one device resolves by another directory, one only by the projection."""
    watched.grant("nvidia.com/gpu=0")
    watched.gate.ok(*DETACHED, "--name", "holder", "--restart", "always", *GPU0, *SLEEP)
    watched.raw.ok("create", "--name", "behind", "--network", "none", "--restart", "always",
                   "--device", OTHER, *SLEEP)  # fmt: skip
    watched.raw.ok("create", "--name", "plain", "--network", "none", "--restart", "always", *SLEEP)
    watched.raw.ok("start", "plain")
    eventually(lambda: known(watched, "holder"), watched)
    watched.revoke_all()
    kill_gate(watched)
    watched.raw.ok("start", "behind")
    watched.daemon.kill()
    watched.daemon.start(image=False)
    back = {"plain"} if watched.daemon.engine.major < 28 else {"plain", "behind"}  # moby issue 49989
    eventually(lambda: back <= running(watched), watched)
    assert "holder" not in running(watched), "the projection alone keeps it from starting"
    start_gate(watched)
    eventually(lambda: running(watched) == {"plain"}, watched)
    watched.daemon.kill()
    watched.daemon.start(image=False)
    eventually(lambda: "plain" in running(watched), watched)
    eventually(lambda: running(watched) == {"plain"}, watched)


def test_requests_are_refused_while_the_daemon_reads_other_specs_than_accepted(watched: Gated) -> None:
    file = watched.machine.root / f"etc/rediacc/repos/{REPO}.yaml"
    content = file.read_text()
    try:
        file.write_text(content.replace("accept: [cdi-spec-dirs]", "accept: []"))
        eventually(lambda: watched.gate.run("ps").returncode != 0, watched)
        done = watched.gate.run("ps")
        assert "[daemon-precondition]" in done.stderr
        assert "cdi-spec-dirs" in done.stderr
        assert watched.gate.run("version").stdout, "what is asked first is answered"
    finally:
        file.write_text(content)
    eventually(lambda: watched.gate.run("ps").returncode == 0, watched)
