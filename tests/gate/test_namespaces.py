"""Namespaces: a container's own, another's by full id, the host's by policy."""

import pytest

from gate.core.denial import Denial
from gate.core.repo import Namespace
from tests.gate.world import FULL_ID, World, allowing, cdi, container, host_of

FORWARDED: list[dict[str, object]] = [
    {"NetworkMode": ""},
    {"NetworkMode": "default"},
    {"NetworkMode": "bridge"},
    {"NetworkMode": "none"},
    {"NetworkMode": "my_net"},
    {"IpcMode": "private"},
    {"IpcMode": "shareable"},
    {"IpcMode": "none"},
    {"PidMode": ""},
    {"CgroupnsMode": "private"},
    {"UTSMode": "", "UsernsMode": ""},
]


@pytest.mark.parametrize("host", FORWARDED)
def test_forwarded(host: dict[str, object]) -> None:
    assert World().codes(host) == ()


REFUSED = [
    ({"NetworkMode": "host"}, ("network-mode",)),
    ({"networkmode": "host"}, ("network-mode",)),
    ({"NetworkMode": "container:nope"}, ("object-unknown",)),
    ({"NetworkMode": "container:"}, ("object-unknown",)),
    ({"NetworkMode": "container:../volumes/v"}, ("object-unknown",)),
    ({"PidMode": "host"}, ("pid-mode",)),
    ({"PidMode": "Host"}, ("pid-mode",)),
    ({"PidMode": "container:c"}, ("pid-mode",)),
    ({"IpcMode": "host"}, ("ipc-mode",)),
    ({"IpcMode": "x"}, ("ipc-mode",)),
    ({"UTSMode": "host"}, ("uts-mode",)),
    ({"UsernsMode": "host"}, ("userns-mode",)),
    ({"UsernsMode": "keep-id"}, ("userns-mode",)),
    ({"CgroupnsMode": "host"}, ("cgroupns-mode",)),
]


@pytest.mark.parametrize(("host", "codes"), REFUSED)
def test_refused(host: dict[str, object], codes: tuple[str, ...]) -> None:
    assert World(containers={"c": container()}).codes(host) == codes


@pytest.mark.parametrize(
    ("policy", "host"),
    [
        ({"network_host": True}, {"NetworkMode": "host"}),
        ({"namespaces": (Namespace.IPC_HOST,)}, {"IpcMode": "host"}),
        ({"namespaces": (Namespace.UTS_HOST,)}, {"UTSMode": "host"}),
        ({"namespaces": (Namespace.USERNS_HOST,)}, {"UsernsMode": "host"}),
        ({"namespaces": (Namespace.CGROUPNS_HOST,)}, {"CgroupnsMode": "host"}),
        ({"namespaces": (Namespace.PID_CONTAINER,)}, {"PidMode": "container:c"}),
    ],
)
def test_the_policy_widens(policy: dict[str, object], host: dict[str, object]) -> None:
    base = World(containers={"c": container()})
    assert base.codes(host) != ()
    assert allowing(base, **policy).codes(host) == ()


def test_no_policy_gives_the_hosts_processes() -> None:
    assert allowing(namespaces=tuple(Namespace)).codes({"PidMode": "host"}) == ("pid-mode",)


def test_another_container_is_named_by_its_full_id() -> None:
    world = World(containers={"web": container()})
    sent = host_of(world.sent({"NetworkMode": "container:web", "IpcMode": "container:web"}))
    assert (sent["NetworkMode"], sent["IpcMode"]) == (f"container:{FULL_ID}", f"container:{FULL_ID}")


@pytest.mark.parametrize(
    ("theirs", "ours", "code"),
    [
        ({"NetworkMode": "host"}, {"NetworkMode": "container:c"}, "network-mode"),
        ({"IpcMode": "host"}, {"IpcMode": "container:c"}, "ipc-mode"),
    ],
)
def test_the_hosts_namespace_is_not_borrowed(
    theirs: dict[str, object], ours: dict[str, object], code: str
) -> None:
    world = World(containers={"c": container(theirs)})
    assert world.codes(ours) == (code,)
    assert allowing(world, network_host=True, namespaces=tuple(Namespace)).codes(ours) == ()


@pytest.mark.parametrize(
    ("theirs", "code"),
    [
        ({"DeviceRequests": [cdi("nvidia.com/gpu=9")]}, "grant-missing"),
        ({"PidMode": "host"}, "pid-mode"),
        ({"Privileged": True}, "pid-mode"),
        ({"Devices": [{"PathOnHost": "/dev/sda"}]}, "raw-device"),
        ({"DeviceCgroupRules": ["c *:* rwm"]}, "device-cgroup-rule"),
        ({"DeviceRequests": [{"Driver": "nvidia", "Count": -1}]}, "device-driver"),
    ],
)
def test_processes_are_not_shared_with_a_holder_of_other_devices(
    theirs: dict[str, object], code: str
) -> None:
    world = allowing(World(containers={"c": container(theirs)}), namespaces=tuple(Namespace))
    assert world.codes({"PidMode": "container:c"}) == (code,)


def test_a_namespace_borrowed_at_second_hand_is_judged_at_its_owner() -> None:
    """B shares what C has: who joins B has it too, and C's grant may have gone since B joined."""
    holder = container({"DeviceRequests": [cdi("nvidia.com/gpu=9")]})
    between = container({"PidMode": "container:c"})
    world = allowing(World(containers={"b": between, "c": holder}), namespaces=tuple(Namespace))
    assert world.codes({"PidMode": "container:b"}) == ("grant-missing",)
    assert world.codes({"NetworkMode": "container:b"}) == ()
    removed = allowing(World(containers={"b": between}), namespaces=tuple(Namespace))
    assert removed.codes({"PidMode": "container:b"}) == ()


def test_containers_that_join_each_other_come_to_an_end() -> None:
    ring = {"b": container({"NetworkMode": "container:c"}), "c": container({"NetworkMode": "container:b"})}
    assert World(containers=ring).codes({"NetworkMode": "container:b"}) == ()


def test_an_unanswered_question_is_refused() -> None:
    for ref, code in (("c", "lookup-failed"), ("a/b", "object-unknown")):
        decision = World(silent=True).create({"NetworkMode": f"container:{ref}"})
        assert isinstance(decision, Denial)
        assert decision.codes() == (code,)
        assert ("no such container" in decision.message()) == (code == "object-unknown")
