"""Grants from `rdc` to the container: there at the next request, gone at the next start, without restarts."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import IMAGE, Docker
from tests.system.conftest import REPO, Gated
from tests.system.gate_machine import BIN, example_spec, gate_machine

RUN = ("run", "--rm", "--network", "none")
LIST = (IMAGE, "sh", "-c", "ls /dev | grep nvidia; echo $NVIDIA_VISIBLE_DEVICES")


@pytest.fixture
def gated(each_gated: Gated) -> Iterator[Gated]:
    """Starts and ends without grants, containers, and other repos."""
    each_gated.revoke_all()
    yield each_gated
    each_gated.revoke_all()
    for name in each_gated.raw.ok("ps", "-aq").split():
        each_gated.raw.run("rm", "-f", name)
    for repo in json.loads(each_gated.machine.rdc("repo", "list", "-o", "json").stdout):
        if repo["name"] != REPO:
            each_gated.machine.rdc("repo", "delete", repo["name"], "--yes")


def denied(cli: Docker, *arguments: str) -> str:
    done = cli.run(*arguments)
    assert done.returncode in {1, 125}, done.stdout + done.stderr
    return done.stderr


def test_a_granted_device_reaches_the_next_container(gated: Gated) -> None:
    pid = gated.machine.pid
    assert "grant-missing" in denied(gated.gate, *RUN, "--device", "nvidia.com/gpu=0", *LIST)
    gated.grant("nvidia.com/gpu=0")
    output = gated.gate.ok(*RUN, "--device", "nvidia.com/gpu=0", *LIST)
    assert output == "nvidia0\nnvidiactl\nvoid\n"
    assert gated.gate.ok(*RUN, *LIST) == "\n"
    assert "grant-missing" in denied(gated.gate, *RUN, "--device", "nvidia.com/gpu=1", *LIST)
    assert "grant-missing" in denied(gated.gate, *RUN, "--device", "nvidia.com/gpu=all", *LIST)
    assert gated.machine.pid == pid


def test_several_devices_in_one_container(gated: Gated) -> None:
    gated.grant("nvidia.com/gpu=0", "nvidia.com/gpu=1")
    both = gated.gate.ok(*RUN, "--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1", *LIST)
    assert both == "nvidia0\nnvidia1\nnvidiactl\nvoid\n"


def test_compose_devices(gated: Gated, tmp_path: Path) -> None:
    gated.grant("nvidia.com/gpu=0")
    file = tmp_path / "compose.yaml"
    command = "ls /dev | grep nvidia"
    service = {"image": IMAGE, "network_mode": "none", "devices": ["nvidia.com/gpu=0"]}
    file.write_text(json.dumps({"services": {"s": {**service, "command": ["sh", "-c", command]}}}))
    compose = ("compose", "-p", "granted", "-f", str(file))
    output = gated.gate.ok(*compose, "up", "--no-color", "--no-log-prefix")
    gated.gate.ok(*compose, "down", "--timeout", "0")
    assert "nvidia0\nnvidiactl" in output


def test_a_revoke_counts_at_the_next_start(gated: Gated) -> None:
    gated.grant("nvidia.com/gpu=0")
    gated.gate.ok(
        "create", "--name", "held", "--network", "none", "--device", "nvidia.com/gpu=0", IMAGE, "true"
    )
    gated.gate.ok("start", "-a", "held")
    gated.revoke_all()
    for verb in ("start", "restart"):
        assert "grant-missing" in denied(gated.gate, verb, "held")
    done = gated.raw.run("start", "held")
    assert done.returncode == 1, "the daemon itself must not resolve it either"
    assert "unresolvable CDI devices nvidia.com/gpu=0" in done.stderr
    gated.grant("nvidia.com/gpu=0")
    gated.gate.ok("start", "-a", "held")


def test_a_paused_container_is_not_resumed_without_its_grant(gated: Gated) -> None:
    gated.grant("nvidia.com/gpu=0")
    gated.gate.ok(
        "run",
        "-d",
        "--name",
        "paused",
        "--network",
        "none",
        "--device",
        "nvidia.com/gpu=0",
        IMAGE,
        "sleep",
        "60",
    )
    gated.gate.ok("pause", "paused")
    gated.revoke_all()
    assert "grant-missing" in denied(gated.gate, "unpause", "paused")
    gated.raw.ok("unpause", "paused")


def test_revoking_names_running_holders_and_stops_them_on_demand(gated: Gated) -> None:
    gated.grant("nvidia.com/gpu=0")
    holder = (
        "run",
        "-d",
        "--name",
        "holder",
        "--network",
        "none",
        "--device",
        "nvidia.com/gpu=0",
        IMAGE,
        "sleep",
        "60",
    )
    gated.gate.ok(*holder)
    done = gated.machine.rdc("repo", "gpu", "revoke", REPO, "--device", "nvidia.com/gpu=0")
    assert "holder" in done.stdout + done.stderr
    assert gated.raw.ok("ps", "--format", "{{.Names}}").split() == ["holder"]


def test_exclusive_grants_and_their_other_names(gated: Gated) -> None:
    machine = gated.machine
    machine.create_repo("gpu-b", machine.root / "absent.sock")
    machine.rdc("repo", "gpu", "grant", REPO, "--device", "nvidia.com/gpu=0", "--exclusive")
    for name in ("nvidia.com/gpu=0", "nvidia.com/gpu=all"):
        done = machine.rdc("repo", "gpu", "grant", "gpu-b", "--device", name, check=False)
        assert done.returncode == 3
        assert REPO in done.stderr
    machine.rdc("repo", "gpu", "grant", "gpu-b", "--device", "nvidia.com/gpu=1")
    done = machine.rdc(
        "repo", "gpu", "grant", REPO, "--device", "nvidia.com/gpu=all", "--exclusive", check=False
    )
    assert done.returncode == 3


def test_an_unknown_name_is_refused_with_near_ones(gated: Gated) -> None:
    done = gated.machine.rdc("repo", "gpu", "grant", REPO, "--device", "nvidia.com/gpu=O", check=False)
    assert done.returncode == 3
    assert "nvidia.com/gpu=0" in done.stderr
    listed = json.loads(gated.machine.rdc("repo", "gpu", "list", REPO, "-o", "json").stdout)
    assert listed == []


def test_an_expired_grant_is_over_and_leaves_the_projection(gated: Gated) -> None:
    gated.machine.rdc("repo", "gpu", "grant", REPO, "--device", "nvidia.com/gpu=0", "--expires", "2s")
    gated.gate.ok(*RUN, "--device", "nvidia.com/gpu=0", *LIST)
    deadline = time.monotonic() + 15
    while any(Path(gated.repo["cdi_spec_dir"]).iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "grant-expired" in denied(gated.gate, *RUN, "--device", "nvidia.com/gpu=0", *LIST)


def test_a_name_that_means_another_card_is_refused_until_renewed(gated: Gated) -> None:
    gated.grant("nvidia.com/gpu=0")
    try:
        gated.machine.write_spec("nvidia.json", example_spec("1", "0"))
        refusal = denied(gated.gate, *RUN, "--device", "nvidia.com/gpu=0", *LIST)
        assert "grant-drifted" in refusal
        assert f"rdc repo gpu regrant {REPO} --device nvidia.com/gpu=0" in refusal
        gated.machine.rdc("repo", "gpu", "regrant", REPO, "--yes")
        assert "nvidia1" in gated.gate.ok(*RUN, "--device", "nvidia.com/gpu=0", *LIST)
    finally:
        gated.machine.write_spec("nvidia.json", example_spec("0", "1"))


def test_a_damaged_store_stops_devices_and_nothing_else(gated: Gated) -> None:
    gated.grant("nvidia.com/gpu=0")
    store = gated.machine.root / "etc/rediacc/gpu/grants.json"
    content = store.read_bytes()
    try:
        store.write_bytes(content[:-20])
        assert "grant-unusable" in denied(gated.gate, *RUN, "--device", "nvidia.com/gpu=0", *LIST)
        gated.gate.ok(*RUN, IMAGE, "true")
        done = gated.machine.rdc("repo", "gpu", "grant", REPO, "--device", "nvidia.com/gpu=1", check=False)
        assert done.returncode == 1
        assert store.read_bytes() == content[:-20], "a damaged store is never overwritten"
    finally:
        store.write_bytes(content)
    gated.gate.ok(*RUN, "--device", "nvidia.com/gpu=0", *LIST)


def test_repos_come_and_go_while_the_gate_runs(gated: Gated) -> None:
    pid = gated.machine.pid
    repo = gated.machine.create_repo("second", gated.machine.root / "second.sock")
    file = gated.machine.root / "etc/rediacc/repos/second.yaml"
    file.write_text(file.read_text().replace("accept: []", "accept: [cdi-spec-dirs]"))
    gated.machine.wait_for_socket(repo["socket"])
    (gated.machine.root / "second.sock").symlink_to(gated.daemon.socket)
    second = Docker(f"unix://{repo['socket']}", gated.gate.engine)
    deadline = time.monotonic() + 10
    while second.run("ps").returncode != 0:  # until the gate has read what the file accepts
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert second.ok(*RUN, IMAGE, "echo", "hi") == "hi\n"
    gated.grant("nvidia.com/gpu=0")
    assert "repo second" in denied(second, *RUN, "--device", "nvidia.com/gpu=0", *LIST)
    gated.machine.rdc("repo", "delete", "second", "--yes")
    gated.machine.wait_for_socket(repo["socket"], present=False)
    (gated.machine.root / "second.sock").unlink()
    assert gated.machine.pid == pid


def test_a_repos_policy_widens_what_is_not_hardware(gated: Gated, tmp_path: Path) -> None:
    file = gated.machine.root / f"etc/rediacc/repos/{REPO}.yaml"
    before = file.read_text()
    work = tmp_path / "work"
    work.mkdir()
    (work / "escape").symlink_to("/dev")
    bind = (
        *RUN,
        "-v",
        f"{work}:/w",
        IMAGE,
        "sh",
        "-c",
        "echo made > /w/made; mknod /w/node c 1 5 || echo no mknod",
    )
    assert "bind-root" in denied(gated.gate, *bind)
    try:
        temporary = file.with_suffix(".tmp")
        temporary.write_text(
            before.replace("bind_roots: []", f"bind_roots: [{tmp_path}]").replace(
                "network_host: false", "network_host: true"
            )
        )
        temporary.replace(file)
        deadline = time.monotonic() + 5
        while (done := gated.gate.run(*bind)).returncode != 0:
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.1)
        assert done.stdout == "no mknod\n"
        assert (work / "made").read_text() == "made\n"
        gated.gate.ok("run", "--rm", "--network", "host", IMAGE, "true")
        for hidden in (
            f"{work}/escape:/d",
            f"{work}/escape/null:/n",
            f"{work}/../../..{os.sep}dev:/d",
            "/srv:/srv",
        ):
            assert "[bind-" in denied(gated.gate, *RUN, "-v", hidden, IMAGE, "true")
        assert "gpus-flag" in denied(gated.gate, *RUN, "--gpus", "all", IMAGE, "true")
    finally:
        file.write_text(before)


def test_the_gates_own_socket_may_be_bound(gated: Gated) -> None:
    socket = gated.repo["socket"]
    gated.gate.ok(*RUN, "-v", f"{socket}:/var/run/docker.sock", IMAGE, "test", "-S", "/var/run/docker.sock")
    raw = str(gated.machine.root / "d.sock")
    assert "[bind-" in denied(gated.gate, *RUN, "-v", f"{raw}:/var/run/docker.sock", IMAGE, "true")
    assert "[bind-" in denied(gated.gate, *RUN, "-v", f"{gated.daemon.socket}:/s", IMAGE, "true")
    assert "[bind-" in denied(gated.gate, *RUN, "-v", f"{Path(socket).parent}:/s", IMAGE, "true")


def test_a_second_gate_on_the_root_is_refused_and_the_next_one_takes_over() -> None:
    with gate_machine() as machine:
        machine.start()
        second = subprocess.run(
            [BIN / "renet", "gate", "serve"],
            check=False,
            env=machine.environment(),
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert second.returncode == 3
        assert str(machine.pid) in second.stderr
        machine.stop()
        machine.start()
