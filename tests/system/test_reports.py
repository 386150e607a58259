"""Ten public reports about gates before Docker, as cases: what came in there, and the right behaviour here.

Source: the issue trackers of Tecnativa/docker-socket-proxy, docker-py, huddle, moby, rancher-desktop,
sockguard and Portainer, by the numbers in the tests' names.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import IMAGE, request
from tests.system.conftest import REPO, Gated
from tests.system.test_vectors import exchange

CREATE = "/v1.44/containers/create"
GPU0 = "nvidia.com/gpu=0"


@pytest.fixture
def gated(each_gated: Gated) -> Iterator[Gated]:
    """Granted nvidia.com/gpu=0, and empty afterwards."""
    each_gated.grant(GPU0)
    yield each_gated
    each_gated.revoke_all()
    for name in each_gated.raw.ok("ps", "-aq").split():
        each_gated.raw.run("rm", "-f", name)


def refused(gated: Gated, target: str, body: object, *codes: str) -> str:
    """403 with these codes, and the daemon makes nothing."""
    since = gated.log_size()
    answer = request(gated.socket, "POST", target, json.dumps(body).encode())
    assert answer.status == 403, answer.body
    for code in codes:
        assert f"[{code}]" in answer.message
    assert not [call for call in gated.api_calls(since) if call.startswith("POST")]
    return answer.message


def test_socket_proxy_145_all_gpus_for_a_user_of_one(gated: Gated) -> None:
    done = gated.gate.run("run", "--rm", "--network", "none", "--gpus", "all", IMAGE, "true")
    assert done.returncode == 125
    assert GPU0 in done.stderr
    request_ = {"Driver": "", "Count": -1, "Capabilities": [["gpu"]], "Options": {}}
    message = refused(
        gated, CREATE, {"Image": IMAGE, "HostConfig": {"DeviceRequests": [request_]}}, "gpus-flag"
    )
    assert GPU0 in message, "it names what is granted"


def test_docker_py_3213_three_ways_at_once(gated: Gated) -> None:
    host = {
        "DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["0"], "Capabilities": [["gpu"]]}],
        "Privileged": True,
        "Runtime": "nvidia",
    }
    refused(gated, CREATE, {"Image": IMAGE, "HostConfig": host}, "device-driver", "privileged", "runtime")


def test_huddle_20_volume_that_is_a_bind(gated: Gated) -> None:
    options = {"type": "none", "o": "bind", "device": "/"}
    refused(gated, "/v1.44/volumes/create", {"Name": "v", "DriverOpts": options}, "volume-option")
    mount = {
        "Type": "volume", "Source": "v", "Target": "/v",
        "VolumeOptions": {"DriverConfig": {"Name": "local", "Options": options}},
    }  # fmt: skip
    refused(gated, CREATE, {"Image": IMAGE, "HostConfig": {"Mounts": [mount]}}, "volume-option")
    assert request(gated.socket, "POST", "/v1.44/volumes/create", {"Name": "plain"}).status == 201
    assert request(gated.socket, "DELETE", "/v1.44/volumes/plain").status == 204


def test_moby_36317_a_parameter_of_the_content_type(gated: Gated) -> None:
    header = {"Content-Type": "application/json; charset=utf-8"}
    for host, status in (({"Privileged": True}, 403), ({}, 201)):
        body = json.dumps({"Image": IMAGE, "Cmd": ["true"], "HostConfig": host}).encode()
        assert request(gated.socket, "POST", CREATE, body, header).status == status


def test_moby_47633_granted_but_absent_is_the_daemons_to_say(gated: Gated) -> None:
    gated.gate.ok("create", "--name", "one", "--network", "none", "--device", GPU0, IMAGE, "true")
    directory = Path(gated.repo["cdi_spec_dir"])
    kept = {path: path.read_bytes() for path in directory.iterdir()}
    for path in kept:
        path.unlink()
    try:
        through = request(gated.socket, "POST", "/v1.44/containers/one/start")
        assert through.status == 500
        assert "unresolvable CDI devices" in through.message
        assert "grant" not in through.message
    finally:
        for path, content in kept.items():
            path.write_bytes(content)


@pytest.mark.parametrize("interactive", [(), ("-i",)])
def test_socket_proxy_132_exec_upgrades(gated: Gated, interactive: tuple[str, ...]) -> None:
    gated.gate.ok("run", "-d", "--name", "one", "--network", "none", IMAGE, "sleep", "60")
    done = gated.gate.run("exec", *interactive, "one", "sh", "-c", "echo out; echo err >&2; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "out\n", "err\n")
    made = request(gated.socket, "POST", "/v1.44/containers/one/exec", {"AttachStdout": True, "Cmd": ["id"]})
    start = (
        f"POST /v1.44/exec/{made.json()['Id']}/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\n"
        "Upgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n"
        '{"Detach":false,"Tty":false}'
    )
    answer = exchange(gated.socket, start.encode())
    assert answer.startswith(b"HTTP/1.1 101 UPGRADED\r\n")


def test_rancher_desktop_2094_the_end_of_input(gated: Gated) -> None:
    gated.gate.ok("run", "-d", "--name", "one", "--network", "none", IMAGE, "sleep", "60")
    done = gated.gate.run("exec", "-i", "one", "cat", stdin="hi\n")
    assert (done.returncode, done.stdout) == (0, "hi\n")


def test_sockguard_29_buildx_brings_no_privileged_builder(gated: Gated, tmp_path: Path) -> None:
    """BuildKit itself is open here; what stays shut is the privileged container of another builder."""
    body = {"Image": "moby/buildkit:buildx-stable-1", "HostConfig": {"Privileged": True}}
    message = refused(gated, f"{CREATE}?name=buildx_buildkit_x0", body, "privileged")
    assert "buildx use default" in message
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN true\n")
    for buildkit in ("0", "1"):
        gated.gate.ok("build", "--network", "none", str(tmp_path), env={"DOCKER_BUILDKIT": buildkit})


def test_moby_49989_restart_policies_across_a_restart(gated: Gated) -> None:
    """What is granted comes back from 28.2 on; what was revoked does not, by the gate or by the daemon."""
    run = ("run", "-d", "--restart", "always", "--network", "none", "--device", GPU0)
    gated.gate.ok(*run, "--name", "one", IMAGE, "sleep", "600")
    gated.daemon.kill()
    gated.daemon.start(image=False)
    deadline = time.monotonic() + 15
    while gated.daemon.engine.major >= 28 and not _running(gated):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    gated.revoke_all()
    gated.daemon.kill()
    gated.daemon.start(image=False)
    assert not _running(gated)
    answer = request(gated.socket, "POST", "/v1.44/containers/one/start")
    assert (answer.status, "[grant-missing]" in answer.message, REPO in answer.message) == (403, True, True)
    assert gated.raw.run("start", "one").returncode == 1


def test_portainer_1762_one_bind_by_other_doors(gated: Gated) -> None:
    mount = {"Type": "bind", "Source": "/dev", "Target": "/d"}
    refused(gated, CREATE, {"Image": IMAGE, "HostConfig": {"Mounts": [mount]}}, "bind-device")
    refused(gated, "/v1.44/services/abc/update?version=1", {"TaskTemplate": {}}, "swarm")
    gated.raw.ok("create", "--name", "other", "--network", "none", "-v", "/dev:/d", IMAGE, "true")
    host = {"VolumesFrom": ["other"]}
    refused(gated, CREATE, {"Image": IMAGE, "HostConfig": host}, "volumes-from")


def _running(gated: Gated) -> bool:
    found = gated.daemon.request("GET", "/containers/one/json").json()["State"]["Running"]
    return bool(found)
