"""Update: limits and restart policy, nothing else."""

import json
from dataclasses import replace

import pytest

from gate.core.denial import Denial
from gate.core.policy import Forward
from tests.gate.world import FULL_ID, World, body_of, cdi, container, granting

TARGET = b"/v1.51/containers/web/update"


WORLD = World(containers={"web": container()})


def update(body: dict[str, object] | None, world: World = WORLD) -> Forward | Denial:
    return world.decide("POST", TARGET, b"" if body is None else json.dumps(body).encode())


def test_what_may_change_is_sent() -> None:
    body = {
        "CpuShares": 1, "Memory": 2, "NanoCpus": 3, "BlkioWeight": 4, "CpuPeriod": 5, "CpuQuota": 6,
        "CpuRealtimePeriod": 7, "CpuRealtimeRuntime": 8, "CpusetCpus": "0", "CpusetMems": "0",
        "KernelMemory": 9,
        "MemoryReservation": 10, "MemorySwap": -1, "PidsLimit": -1, "RestartPolicy": {"Name": "always"},
    }  # fmt: skip
    assert body_of(update(body)) == body


def test_what_the_daemon_ignores_is_left_out() -> None:
    body = {"Memory": 5, "Ulimits": [{"Name": "a"}], "OomKillDisable": False, "HostConfig": {"Memory": 1}}
    decision = update(body)
    assert body_of(decision) == {"Memory": 5}
    assert isinstance(decision, Forward)
    assert any("HostConfig" in warning for warning in decision.response_warnings)


@pytest.mark.parametrize("body", [None, {}])
def test_no_body_is_an_empty_one(body: dict[str, object] | None) -> None:
    assert body_of(update(body)) == {}


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ({"Devices": [{"PathOnHost": "/dev/sda"}]}, ("raw-device",)),
        ({"devices": [{"PathOnHost": "/dev/sda"}]}, ("raw-device",)),
        ({"DeviceCgroupRules": ["a *:* rwm"]}, ("device-cgroup-rule",)),
        ({"DeviceRequests": [cdi("nvidia.com/gpu=0")]}, ("update-field",)),
        ({"DeviceRequests": [{"Count": -1}]}, ("gpus-flag", "update-field")),
        ({"CgroupParent": "/x"}, ("cgroup-parent",)),
        ({"BlkioDeviceReadBps": [{"Path": "/dev/sda"}]}, ("blkio-device",)),
    ],
)
def test_refused(body: dict[str, object], codes: tuple[str, ...]) -> None:
    decision = update(body)
    assert isinstance(decision, Denial)
    assert decision.codes() == codes


HOLDER = container({"DeviceRequests": [cdi("nvidia.com/gpu=0")]})
RESTART: dict[str, object] = {"RestartPolicy": {"Name": "always"}}


def test_a_restart_policy_is_judged_as_a_start() -> None:
    """The daemon would start the container by itself, with no request to judge then."""
    forwarded = update(RESTART, replace(WORLD, containers={"web": HOLDER}))
    assert isinstance(forwarded, Forward)
    assert forwarded.target == TARGET.replace(b"web", FULL_ID.encode())
    for world, status, code in (
        (replace(granting(), containers={"web": HOLDER}), 403, "grant-missing"),
        (replace(WORLD, containers={"web": container({"Privileged": True})}), 403, "privileged"),
        (World(), 404, "object-unknown"),
        (World(silent=True), 403, "lookup-failed"),
    ):
        for name in ("always", "unless-stopped", "on-failure"):
            denied = update({"restartpolicy": {"name": name}}, world)
            assert isinstance(denied, Denial)
            assert (denied.status, denied.codes()) == (status, (code,))
        harmless: list[dict[str, object]] = [{"RestartPolicy": {"Name": "no"}}, {"Memory": 5}]
        for body in harmless:
            assert isinstance(update(body, world), Forward), "what starts nothing is not judged"
    both = update({**RESTART, "CgroupParent": "/x"}, World())
    assert isinstance(both, Denial)
    assert both.codes() == ("cgroup-parent",)
