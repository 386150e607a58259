"""When two names are the same hardware."""

import pytest
from hypothesis import given

from cdi.core.pin import Pin
from cdi.core.resolve import NodeId
from grants.core.conflict import same_hardware
from tests.grants.strategies import pins


def node(path: str, major: int | None = None, minor: int | None = None) -> NodeId:
    return NodeId(path=path, type="c" if major else "", major=major, minor=minor)


CARD_0, CARD_1 = node("/dev/nvidia0", 195, 0), node("/dev/nvidia1", 195, 1)
CAP_21, CAP_22, CAP_30 = (node(f"/dev/nvidia-caps/nvidia-cap{n}", 236, n) for n in (21, 22, 30))
PCI = ("0000:01:00.0",)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (Pin(nodes=(CARD_0,)), Pin(nodes=(CARD_0,)), True),
        (Pin(nodes=(CARD_0,)), Pin(nodes=(CARD_1,)), False),
        (Pin(nodes=(CARD_0, CARD_1)), Pin(nodes=(CARD_1,)), True),
        (Pin(), Pin(), False),
        # another path with the same numbers; the same path without numbers
        (Pin(nodes=(CARD_0,)), Pin(nodes=(node("/dev/other", 195, 0),)), True),
        (Pin(nodes=(CARD_0,)), Pin(nodes=(node("/dev/nvidia0"),)), True),
        # the same card under other nodes
        (Pin(uuids=("GPU-a",), nodes=(CARD_0,)), Pin(uuids=("GPU-a",), nodes=(CARD_1,)), True),
        (Pin(pci=PCI, nodes=(CARD_0,)), Pin(pci=PCI, nodes=(node("/dev/dri/renderD128", 226, 128),)), True),
        # slices of one card, their whole card, another card
        (Pin(pci=PCI, nodes=(CARD_0, CAP_21)), Pin(pci=PCI, nodes=(CARD_0, CAP_30)), False),
        (Pin(nodes=(CARD_0, CAP_21, CAP_22)), Pin(nodes=(CARD_0, CAP_21, CAP_30)), True),
        (Pin(nodes=(CARD_0, CAP_21)), Pin(nodes=(CARD_0,)), True),
        (Pin(nodes=(CARD_0, CAP_21)), Pin(nodes=(CARD_0, CARD_1, CAP_30)), True),
        (Pin(nodes=(CARD_0, CAP_21)), Pin(nodes=(CARD_1,)), False),
        (Pin(uuids=("MIG-a",), nodes=(CARD_0, CAP_21)), Pin(uuids=("MIG-a",), nodes=(CARD_0, CAP_30)), True),
    ],
)
def test_table(a: Pin, b: Pin, same: bool) -> None:
    assert bool(same_hardware(a, b)) == same
    assert bool(same_hardware(b, a)) == same


@given(pins(), pins())
def test_symmetric_and_reflexive(a: Pin, b: Pin) -> None:
    assert bool(same_hardware(a, b)) == bool(same_hardware(b, a))
    assert bool(same_hardware(a, a)) == bool(a.nodes or a.uuids or a.pci)
