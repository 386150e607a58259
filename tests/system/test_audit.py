"""What real clients are refused stands in the audit log, with who asked; the log survives a killed gate."""

import json
import os
import time
from pathlib import Path

from tests.engine import IMAGE, request
from tests.system.conftest import REPO, Gated
from tests.system.gate_machine import GateMachine, gate_machine

RUN = ("run", "--rm", "--network", "none")
Row = dict[str, object]


def tail(machine: GateMachine, *options: str) -> list[Row]:
    found: list[Row] = json.loads(machine.rdc("audit", "tail", "-n", "1000", "-o", "json", *options).stdout)
    return found


def wait_for(machine: GateMachine, seq: int, event: str) -> list[Row]:
    """The lines behind `seq` of this event, once there is one: the gate answers before it writes."""
    deadline = time.monotonic() + 20
    while True:
        found = [row for row in tail(machine) if int(str(row["seq"])) > seq and row["event"] == event]
        if found:
            return found
        assert time.monotonic() < deadline, tail(machine)
        time.sleep(0.05)


def verified(machine: GateMachine, *options: str) -> Row:
    done = machine.rdc("audit", "verify", "-o", "json", *options)
    found: Row = json.loads(done.stdout)
    assert found["whole"] is True
    return found


def test_a_denied_run_tells_who_asked(each_gated: Gated) -> None:
    machine = each_gated.machine
    since = int(str(verified(machine)["lines"]))
    done = each_gated.gate.run(*RUN, "--gpus", "all", "--privileged", IMAGE, "true")
    assert done.returncode == 125
    (row,) = wait_for(machine, since, "request.denied")
    assert (row["repo"], row["guid"], row["subject"]) == (REPO, each_gated.repo["guid"], "container.create")
    assert {"gpus-flag", "privileged"} == set(row["rules"])  # type: ignore[call-overload]
    assert (row["uid"], row["gid"]) == (os.getuid(), os.getgid())
    assert int(str(row["pid"])) > 1
    verified(machine)


def test_grants_and_forced_stops_stand_beside_it(each_gated: Gated) -> None:
    machine = each_gated.machine
    anchor = str(verified(machine)["tip"])
    since = int(anchor.partition(":")[0])
    each_gated.grant("nvidia.com/gpu=0")
    holder = each_gated.gate.ok(
        "run", "-d", "--network", "none", "--device", "nvidia.com/gpu=0", IMAGE, "sleep", "300"
    ).strip()
    machine.rdc("repo", "gpu", "revoke", REPO, "--all", "--stop")
    each_gated.gate.ok("rm", "-f", holder)
    wait_for(machine, since, "container.stopped")  # by rdc, or by the gate's watcher where that was quicker
    rows = [row for row in tail(machine, "--repo", REPO) if int(str(row["seq"])) > since]
    told = [(row["event"], row["subject"]) for row in rows if row["event"] != "request.denied"]
    assert told[:2] == [("grant.granted", "nvidia.com/gpu=0"), ("grant.revoked", "nvidia.com/gpu=0")]
    assert ("container.stopped", holder) in told[2:]
    assert {row["uid"] for row in rows if str(row["event"]).startswith("grant.")} == {os.getuid()}
    verified(machine, "--expect", anchor)


def test_a_gate_that_is_killed_leaves_a_chain_that_verifies() -> None:
    with gate_machine() as machine:
        machine.start()
        repo = machine.create_repo("a", machine.root / "absent.sock")
        socket = Path(repo["socket"])
        machine.wait_for_socket(repo["socket"])
        for turn in range(3):
            since = int(str(verified(machine)["lines"]))
            for number in range(15):
                target = ("/v1.51/plugins", "/v1.51/swarm", "/v1.51/nonsense")[number % 3]
                assert request(socket, "GET", target).status == 403
            if turn:
                wait_for(machine, since, "request.denied")
            machine.kill()
            verified(machine)
            machine.start()
            machine.wait_for_socket(repo["socket"])
            wait_for(machine, since, "gate.started")
            verified(machine)
        assert [row["event"] for row in tail(machine)].count("gate.started") == 4
