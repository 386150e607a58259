"""The wall with the gate down: what the daemon alone can resolve is what is granted."""

import time
from collections.abc import Iterator

import pytest

from tests.engine import IMAGE, Engine
from tests.system.conftest import REPO
from tests.system.wall import KIND, Wall, furnished
from tests.system.wall_attempts import attempts


@pytest.fixture
def wall(each_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wall]:
    with furnished(each_engine, tmp_path_factory.mktemp("root")) as made:
        yield made


def test_the_daemon_alone_resolves_nothing_ungranted(wall: Wall) -> None:
    """Gate down, root on the raw socket: CDI names that are not granted start nothing, and run no hook."""
    daemon = wall.gated.daemon
    wall.gated.machine.stop()
    try:
        for names in (
            [f"{KIND}=1"], [f"{KIND}=2"], [f"{KIND}=all"], [f"{KIND}=0", f"{KIND}=1"], [KIND], [f"{KIND}=*"],
        ):  # fmt: skip
            for policy in ("no", "always"):
                host = {
                    "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": names}],
                    "RestartPolicy": {"Name": policy},
                }
                made = daemon.request("POST", "/containers/create", wall.body(host))
                if made.status == 201:
                    started = daemon.request("POST", f"/containers/{made.json()['Id']}/start").status
                    assert started >= 400, names
        for verb in ("start", "restart"):
            assert daemon.request("POST", f"/containers/dormant-cdi/{verb}").status >= 400
        for each in daemon.request("GET", "/containers/json?all=1").json():
            if each["State"] != "running" and each["Labels"] == {}:
                log = daemon.request("GET", f"/containers/{each['Id']}/logs?stdout=1").body
                assert log == b""
                daemon.request("DELETE", f"/containers/{each['Id']}?force=1")
        granted = {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [f"{KIND}=0"]}]}
        made = daemon.request("POST", "/containers/create", wall.body(granted)).json()
        assert daemon.request("POST", f"/containers/{made['Id']}/start").status == 204, (
            "what is granted starts"
        )
        daemon.request("POST", f"/containers/{made['Id']}/wait")
        log = daemon.request("GET", f"/containers/{made['Id']}/logs?stdout=1").body
        assert b"PROBED" in log
        assert b"BREACH" not in log
        daemon.request("DELETE", f"/containers/{made['Id']}")
    finally:
        wall.gated.machine.start()


def test_a_holder_does_not_come_back_with_the_daemon(wall: Wall) -> None:
    """Restart policy, gate down, daemon restarted: the projection alone keeps the device away."""
    daemon, machine = wall.gated.daemon, wall.gated.machine
    daemon.request("DELETE", "/containers/paused?force=1")  # what is frozen cannot be killed with its daemon
    wall.gated.grant(f"{KIND}=2")
    host = {
        "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [f"{KIND}=2"]}],
        "RestartPolicy": {"Name": "always"},
        "NetworkMode": "none",
    }
    body = {"Image": IMAGE, "Cmd": ["sleep", "600"], "HostConfig": host}
    made = wall.ask("POST", "/v1.44/containers/create?name=returning", body)
    assert wall.ask("POST", f"/v1.44/containers/{made.json()['Id']}/start").status == 204
    machine.rdc("repo", "gpu", "revoke", REPO, "--device", f"{KIND}=2")
    machine.stop()
    daemon.kill()
    try:
        daemon.start(image=False)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            state = daemon.request("GET", "/containers/returning/json").json()["State"]
            assert not state["Running"]
            time.sleep(0.2)
    finally:
        daemon.request("DELETE", "/containers/returning?force=1")
        machine.start()


OPEN_WITHOUT = {
    "device fields": {"privileged", "the node", "all of /dev", "through /proc", "cgroup rule"},
    "JSON": {"lower case", "long s", "escaped", "twice", "then null", "before more"},
    "mounts": {"raw socket", "bind of /"},
    "execs": {"in a privileged container", "privileged"},
    "attaches": {"to a privileged shell"},
    "HTTP": {"encoded slash", "odd version", "other HTTP version", "behind a failed upgrade"},
    "starts": {"start dormant-raw", "start dormant-pid"},
}


def test_without_the_gate_the_same_attempts_open_it(wall: Wall) -> None:
    """Else that they open nothing through the gate would prove nothing."""
    wall.gated.machine.stop()
    # The gate may be in the middle of stopping it, as it does with what holds ungranted hardware.
    for step in ("kill", "wait", "start"):
        wall.gated.daemon.request("POST", f"/containers/privileged/{step}")
    wall.past = True
    shut = set()
    for attempt in attempts():
        if attempt.name in OPEN_WITHOUT.get(attempt.class_, ()):
            attempt.act(wall)
            if not wall.finish()[0]:
                shut.add(attempt.name)
    assert shut == set()
