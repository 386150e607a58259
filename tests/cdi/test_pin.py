import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from cdi.core.names import QualifiedName
from cdi.core.pin import Pin, drift, overlap, pin
from cdi.core.resolve import GpuInfo, NodeId
from tests.cdi.hosts import FakeProbe, catalog, character, gpus, shared_spec
from tests.shared_data import shared

A, B, C = (f"GPU-1a2b000{digit}-5c1e-4d2a-9b7f-a0c01a2b000{digit}" for digit in "012")
MIG = "MIG-5f0b2a3c-1d4e-5b6f-8a90-0123456789a1"
EMPTY = FakeProbe()


def pinned(text, device, probe=EMPTY):
    found = text if not isinstance(text, str) else catalog(("etc/nvidia.yaml", 0, text))
    return pin(found.devices[QualifiedName.parse(f"nvidia.com/gpu={device}")], found, probe)


def cards(*uuids):
    return FakeProbe(
        gpus=tuple(GpuInfo(pci=f"0000:0{n}:00.0", uuid=uuid, minor=n) for n, uuid in enumerate(uuids))
    )


def slice_(name, *caps):
    nodes = ", ".join(f"{{path: /dev/nvidia-caps/nvidia-cap{cap}, major: 234, minor: {cap}}}" for cap in caps)
    parent = "{path: /dev/nvidia0, major: 195}"
    return f"- {{name: '{name}', containerEdits: {{deviceNodes: [{parent}, {nodes}]}}}}\n"


SLICES = slice_("0:0", 21, 22) + slice_(MIG, 21, 22) + slice_("0:1", 30, 31)


@pytest.mark.parametrize(
    ("device", "uuids"),
    [("0", (A,)), (A, (A,)), ("1", (B,)), ("all", (A, B))],
)
def test_uuids_from_the_spec(device, uuids):
    assert pinned(gpus({0: A, 1: B}), device).uuids == uuids


def test_without_uuid_names_the_driver_tells():
    found = pinned(gpus({0: "", 1: ""}), "1", cards(A, B))
    assert (found.uuids, found.pci) == ((B,), ("0000:01:00.0",))
    assert pinned(gpus({0: "", 1: ""}), "all", cards(A, B)).uuids == (A, B)
    assert pinned(gpus({0: "", 1: ""}), "1").uuids == ()


def test_the_driver_knows_better_than_a_stale_spec():
    before = pinned(gpus({0: A, 1: B}), "0", cards(A, B))
    assert drift(before, pinned(gpus({0: A, 1: B}), "0", cards(B, A)))


def test_a_slice_is_known_by_its_own_uuid():
    text = gpus({0: A}, extra=SLICES)
    assert pinned(text, "0:0", cards(A)).uuids == (MIG,)
    assert pinned(text, MIG, cards(A)).uuids == (MIG,)


def test_pci_from_sysfs():
    probe = FakeProbe({"/dev/dri/renderD128": character(226, 128)}, pci={("c", 226, 128): "0000:65:00.0"})
    text = (
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"
        "devices: [{name: x, containerEdits: {deviceNodes: [{path: /dev/dri/renderD128}]}}]\n"
    )
    found = pinned(text, "x", probe)
    assert found.pci == ("0000:65:00.0",)
    assert found.nodes == (NodeId(path="/dev/dri/renderD128", type="c", major=226, minor=128),)


@pytest.mark.parametrize(
    ("before", "after", "drifted"),
    [
        (gpus({0: A, 1: B}), gpus({0: A, 1: B}), False),
        (gpus({0: A, 1: B}), gpus({0: B, 1: A}), True),
        (gpus({0: A, 1: B}), gpus({0: A}), False),
        (gpus({0: ""}), gpus({0: ""}), False),
    ],
)
def test_index_names(before, after, drifted):
    assert bool(drift(pinned(before, "0"), pinned(after, "0"))) is drifted


@pytest.mark.parametrize(
    ("before", "now", "drifted"),
    [
        (Pin(uuids=(A,), pci=("p0",)), Pin(uuids=(A,), pci=("p1",)), False),
        (
            Pin(uuids=(A,), nodes=(NodeId(path="/dev/nvidia0"),)),
            Pin(uuids=(A,), nodes=(NodeId(path="/dev/nvidia1"),)),
            False,
        ),
        (Pin(uuids=(A,)), Pin(uuids=(B,)), True),
        (Pin(uuids=(A, B)), Pin(uuids=(A,)), True),
        (Pin(uuids=(A,), pci=("p0",)), Pin(pci=("p0",)), False),
        (Pin(uuids=(A,), pci=("p0",)), Pin(pci=("p1",)), True),
        (Pin(pci=("p0",)), Pin(uuids=(A,)), False),
        (Pin(nodes=(NodeId(path="/dev/x", type="c", major=1, minor=1),)), Pin(), True),
        (
            Pin(nodes=(NodeId(path="/dev/x", type="c", major=1, minor=1),)),
            Pin(nodes=(NodeId(path="/dev/x", type="c", major=2, minor=1),)),
            True,
        ),
        (Pin(), Pin(), False),
    ],
)
def test_drift(before, now, drifted):
    assert bool(drift(before, now)) is drifted


@pytest.mark.parametrize(
    ("one", "other", "shared_nodes"),
    [
        ("0", "0", ("/dev/nvidia0",)),
        ("0", A, ("/dev/nvidia0",)),
        ("0", "1", ()),
        ("0", "all", ("/dev/nvidia0",)),
        ("all", "all", ("/dev/nvidia0", "/dev/nvidia1")),
        ("0:0", "0", ("/dev/nvidia0",)),
        ("0:0", "0:1", ("/dev/nvidia0",)),
        ("0:0", MIG, ("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22", "/dev/nvidia0")),
        ("0:0", "1", ()),
    ],
)
def test_overlap_within_a_spec(one, other, shared_nodes):
    text = gpus({0: A, 1: B}, extra=SLICES)
    assert overlap(pinned(text, one), pinned(text, other)) == shared_nodes
    assert len(overlap(pinned(text, other), pinned(text, one))) == len(shared_nodes)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (NodeId(path="/a"), NodeId(path="/a"), True),
        (NodeId(path="/a"), NodeId(path="/b"), False),
        (NodeId(path="/a", type="c", major=1, minor=1), NodeId(path="/b", type="c", major=1, minor=1), True),
        (NodeId(path="/a", type="c", major=1, minor=1), NodeId(path="/b", type="b", major=1, minor=1), False),
        (NodeId(path="/a", type="c", major=1, minor=1), NodeId(path="/b", major=1, minor=1), True),
        (NodeId(path="/a", type="c", major=1, minor=1), NodeId(path="/b", type="c", major=1, minor=2), False),
        (NodeId(path="/a", type="c"), NodeId(path="/b", type="c"), False),
    ],
)
def test_overlap_of_nodes(one, other, same):
    assert bool(overlap(Pin(nodes=(one,)), Pin(nodes=(other,)))) is same


_NODES = st.builds(
    NodeId,
    path=st.text(max_size=5),
    type=st.sampled_from(["", "b", "c", "p"]),
    major=st.none() | st.integers(),
    minor=st.none() | st.integers(),
)
_TEXTS = st.lists(st.text(max_size=5), max_size=3).map(tuple)
PINS = st.builds(Pin, uuids=_TEXTS, pci=_TEXTS, nodes=st.lists(_NODES, max_size=3).map(tuple))


@given(PINS)
def test_json_round_trip(value):
    assert Pin.from_json(json.loads(json.dumps(value.to_json()))) == value
    assert drift(value, value) is None


@given(PINS, PINS)
def test_overlap_is_symmetric(one, other):
    assert bool(overlap(one, other)) == bool(overlap(other, one))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "x",
        {"x": 1},
        {1: 2},
        {"uuids": "a"},
        {"uuids": [1]},
        {"pci": None},
        {"nodes": {}},
        {"nodes": [["a"]]},
        {"nodes": [[1, "c", 1, 1]]},
        {"nodes": [["a", "c", True, 1]]},
        {"nodes": [["a", "c", 1.0, 1]]},
    ],
)
def test_damaged_json(value):
    with pytest.raises(MalformedError):
        Pin.from_json(value)


REORDERED = "ubuntu-570-4gpu-after-reboot-reordered.yaml"


@pytest.mark.skipif(shared("cdi", "specs") is None, reason="no corpora beside this checkout")
@pytest.mark.parametrize(
    ("before", "after", "device", "drifted"),
    [
        ("ubuntu-570-4gpu-ctk1.19.1.yaml", REORDERED, "0", True),
        ("ubuntu-570-4gpu-ctk1.19.1.yaml", REORDERED, "all", False),
        ("ubuntu-570-4gpu-ctk1.19.1.yaml", REORDERED, "GPU-1a2b0000-5c1e-4d2a-9b7f-a0c01a2b0000", False),
        ("ubuntu-570-4gpu-ctk1.19.1.yaml", "ubuntu-570-3gpu-one-lost.yaml", "all", True),
        ("ubuntu-570-4gpu-ctk1.19.1.yaml", "ubuntu-570-4gpu-uvm-major-changed.yaml", "0", False),
        ("headless-570-mig-3g-2g-1g-ctk1.20.0.yaml", "headless-570-mig-after-reconfigure.yaml", "0:0", True),
        (
            "headless-570-mig-3g-2g-1g-ctk1.20.0.yaml",
            "headless-570-mig-3g-2g-1g-ctk1.18.2.yaml",
            "0:0",
            False,
        ),
    ],
)
def test_real_specs(before, after, device, drifted):
    old, new = (shared_spec(shared("cdi", "specs", name)) for name in (before, after))
    assert bool(drift(pinned(old, device), pinned(new, device))) is drifted
