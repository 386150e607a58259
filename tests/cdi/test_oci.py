import copy

import pytest

from cdi.core.edits import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice
from cdi.core.library import Library
from cdi.core.oci import apply

BARE = {"process": {"env": ["PATH=/bin", "BARE"], "user": {"uid": 0, "gid": 0}}}


def mounts(*paths):
    return ContainerEdits(mounts=tuple(Mount(host_path="/h", container_path=path) for path in paths))


@pytest.mark.parametrize(
    ("env", "result"),
    [
        (("A=1", "A=2"), ["PATH=/bin", "BARE", "A=2"]),
        (("PATH=/evil",), ["PATH=/bin", "BARE", "PATH=/evil"]),
        (("A=1", "PATH=/x", "A=", "PATH=/y"), ["PATH=/bin", "BARE", "A=", "PATH=/y"]),
        (("BARE=1",), ["PATH=/bin", "BARE=1"]),
        (("A=b=c",), ["PATH=/bin", "BARE", "A=b=c"]),
    ],
)
def test_env(env, result):
    assert apply(ContainerEdits(env=env), BARE)["process"]["env"] == result


def test_nodes():
    nodes = (
        DeviceNode(path="/dev/x", type="c", major=1, minor=3),
        DeviceNode(path="/dev/y", type="b", major=8, permissions="r", file_mode=0o600, uid=5, gid=0),
        DeviceNode(path="/dev/x", type="c", major=1, minor=5),
        DeviceNode(path="/p", type="p"),
        DeviceNode(path="/u", type="u", major=7),
    )
    linux = apply(ContainerEdits(device_nodes=nodes), BARE)["linux"]
    assert linux["devices"] == [
        {"path": "/dev/y", "type": "b", "major": 8, "minor": 0, "fileMode": 0o600, "uid": 5, "gid": 0},
        {"path": "/dev/x", "type": "c", "major": 1, "minor": 5},
        {"path": "/p", "type": "p", "major": 0, "minor": 0},
        {"path": "/u", "type": "u", "major": 7, "minor": 0},
    ]
    rules = linux["resources"]["devices"]
    assert [(rule["type"], rule["major"], rule["minor"], rule["access"]) for rule in rules] == [
        ("c", 1, 3, "rwm"),
        ("b", 8, 0, "r"),
        ("c", 1, 5, "rwm"),
    ]
    assert all(rule["allow"] is True for rule in rules)


def test_nodes_belong_to_the_process_user():
    spec = {"process": {"user": {"uid": 1000, "gid": 1001}}}
    nodes = (DeviceNode(path="/x", type="c", major=1), DeviceNode(path="/y", type="c", major=1, uid=0))
    devices = apply(ContainerEdits(device_nodes=nodes), spec)["linux"]["devices"]
    assert [(device.get("uid"), device.get("gid")) for device in devices] == [(1000, 1001), (0, 1001)]


@pytest.mark.parametrize(
    ("library", "result"),
    [
        (Library.V0_6_2, ["/", "/a", "/q", "/z", "/b/../c/d", "/x/y"]),
        (Library.V0_8_0, ["/", "/a", "/q", "/z", "/b/../c/d", "/x/y"]),
        (Library.V1_0_1, ["/z", "/a", "/", "/q", "/x/y", "/b/../c/d"]),
        (Library.V1_1_0, ["/z", "/a", "/", "/q", "/x/y", "/b/../c/d"]),
    ],
)
def test_mounts_are_sorted_by_depth(library, result):
    spec = {"mounts": [{"destination": "/x/y", "source": "s"}, {"destination": "/z", "source": "s"}]}
    found = apply(mounts("/a", "/b/../c/d", "/", "/q"), spec, library=library)["mounts"]
    assert [mount["destination"] for mount in found] == result


def test_a_mount_replaces_the_one_at_its_path():
    edits = ContainerEdits(
        mounts=(
            Mount(host_path="/1", container_path="/a"),
            Mount(host_path="/2", container_path="/a", options=("ro",), type="bind"),
            Mount(host_path="/3", container_path="/a/"),
        )
    )
    assert apply(edits, {})["mounts"] == [
        {"destination": "/a", "source": "/2", "options": ["ro"], "type": "bind"},
        {"destination": "/a/", "source": "/3"},
    ]


def test_hooks_keep_their_order_per_stage():
    hooks = (
        Hook(hook_name="poststop", path="/1", args=("a",), env=("B=1",), timeout=0),
        Hook(hook_name="prestart", path="/2"),
        Hook(hook_name="poststop", path="/3"),
    )
    assert apply(ContainerEdits(hooks=hooks), {"hooks": {"prestart": [{"path": "/0"}]}})["hooks"] == {
        "prestart": [{"path": "/0"}, {"path": "/2"}],
        "poststop": [{"path": "/1", "args": ["a"], "env": ["B=1"], "timeout": 0}, {"path": "/3"}],
    }


def test_groups():
    spec = {"process": {"user": {"additionalGids": [44]}}}
    found = apply(ContainerEdits(additional_gids=(0, 5, 44, 5)), spec)
    assert found["process"]["user"]["additionalGids"] == [44, 5]
    assert apply(ContainerEdits(additional_gids=(0,)), {}) == {}


def test_rdt_replaces_all_of_it():
    rdt = IntelRdt(clos_id="d", enable_cmt=True, schemata=("L3:0=f",))
    found = apply(ContainerEdits(intel_rdt=rdt), {"linux": {"intelRdt": {"closID": "s", "memBwSchema": "x"}}})
    assert found["linux"]["intelRdt"] == {"closID": "d", "enableCMT": True, "schemata": ["L3:0=f"]}


def test_net_devices():
    edits = ContainerEdits(net_devices=(NetDevice(host_interface_name="e0", name="n0"),))
    assert apply(edits, {})["linux"]["netDevices"] == {"e0": {"name": "n0"}}


def test_the_given_spec_is_left_alone():
    before = copy.deepcopy(BARE)
    node = DeviceNode(path="/x", type="c", major=1)
    apply(ContainerEdits(env=("A=1",), device_nodes=(node,), additional_gids=(4,)), BARE)
    assert before == BARE
