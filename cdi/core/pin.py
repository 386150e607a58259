"""What a CDI name meant when it was granted, and whether it still means that. Pure.

A CDI name is only a label in a file: after a reboot, a driver update or a lost card `nvidia.com/gpu=0` may be
another card. A pin holds what identifies the hardware behind a name, best first: UUIDs, PCI addresses,
device nodes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from base.errors import MalformedError
from cdi.core.catalog import Catalog, CatalogDevice
from cdi.core.names import QualifiedName
from cdi.core.paths import clean
from cdi.core.resolve import GpuInfo, NodeId, Probe, own_nodes

_UUID = re.compile(
    r"(?:GPU|MIG)-[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", re.ASCII
)
_NVIDIA_NODE = re.compile(r"(?:.*/)?nvidia([0-9]{1,6})", re.ASCII)
_NVIDIA_MAJOR = 195
"""The kernel's assigned number (Documentation/admin-guide/devices.txt) of NVIDIA's cards."""
_CAPABILITIES = "/nvidia-caps/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What a name opens: UUIDs and PCI addresses (sorted, empty when unknown) and the device's own nodes."""

    uuids: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    nodes: tuple[NodeId, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A compact JSON object; a node is `[path, type, major, minor]`, empty parts are left out."""
        nodes = [[node.path, node.type, node.major, node.minor] for node in self.nodes]
        values: dict[str, Any] = {"uuids": list(self.uuids), "pci": list(self.pci), "nodes": nodes}
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_json(cls, value: object) -> "Pin":
        """The pin that `to_json` wrote.

        Raises:
            MalformedError: it is none.
        """
        if not isinstance(value, Mapping) or not value.keys() <= {"uuids", "pci", "nodes"}:
            raise MalformedError(f"no device pin: {value!r:.80}")
        nodes = value.get("nodes", [])
        if not isinstance(nodes, list):
            raise MalformedError(f"no list of device nodes: {nodes!r:.80}")
        return cls(
            uuids=_texts(value.get("uuids", [])),
            pci=_texts(value.get("pci", [])),
            nodes=tuple(_node(node) for node in nodes),
        )


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise MalformedError(f"no list of strings: {value!r:.80}")


def _node(value: object) -> NodeId:
    match value:
        case [str(path), str(type_), int() | None as major, int() | None as minor] if not (
            isinstance(major, bool) or isinstance(minor, bool)
        ):
            return NodeId(path=path, type=type_, major=major, minor=minor)
        case _:
            raise MalformedError(f"no device node [path, type, major, minor]: {value!r:.80}")


def pin(device: CatalogDevice, catalog: Catalog, probe: Probe) -> Pin:
    """What `device` means now.

    The kernel driver's word on a card goes before the spec's, which may be older than the last reboot; a MIG
    slice is known by its spec only, because the driver shows the whole card there.
    """
    nodes = own_nodes(device, probe)
    cards = () if _is_slice(device, nodes) else _cards(nodes, probe)
    return Pin(
        uuids=_known_uuids(nodes, cards) or _named_uuids(device.name, catalog),
        pci=_pci(nodes, cards, probe),
        nodes=nodes,
    )


def _is_slice(device: CatalogDevice, nodes: tuple[NodeId, ...]) -> bool:
    return device.name.device.startswith("MIG-") or any(_CAPABILITIES in node.path for node in nodes)


def _cards(nodes: tuple[NodeId, ...], probe: Probe) -> tuple[GpuInfo, ...]:
    minors = {minor for node in nodes if (minor := _card_minor(node)) is not None}
    return tuple(gpu for gpu in probe.gpus() if gpu.minor in minors)


def _card_minor(node: NodeId) -> int | None:
    """The minor by which the NVIDIA driver knows the card behind a node, None for other nodes."""
    if node.major == _NVIDIA_MAJOR and node.minor is not None and node.minor < 254:  # 254, 255: modeset, ctl
        return node.minor
    match = _NVIDIA_NODE.fullmatch(node.path) if node.major is None else None
    return int(match[1]) if match else None


def _known_uuids(nodes: tuple[NodeId, ...], cards: tuple[GpuInfo, ...]) -> tuple[str, ...]:
    """The driver's UUIDs, if it knows every card among the nodes."""
    minors = {minor for node in nodes if (minor := _card_minor(node)) is not None}
    uuids = {gpu.uuid for gpu in cards if gpu.uuid}
    return tuple(sorted(uuids)) if minors and len(uuids) == len(minors) else ()


def _named_uuids(name: QualifiedName, catalog: Catalog) -> tuple[str, ...]:
    """UUIDs from the spec's own names: this one, those that open the same nodes, else those of its parts."""
    if _UUID.fullmatch(name.device):
        return (name.device,)
    for group in (catalog.aliases(name), catalog.within(name)):
        uuids = sorted(other.device for other in group if _UUID.fullmatch(other.device))
        if uuids:
            return tuple(uuids)
    return ()


def _pci(nodes: tuple[NodeId, ...], cards: tuple[GpuInfo, ...], probe: Probe) -> tuple[str, ...]:
    addresses = {gpu.pci for gpu in cards}
    for node in nodes:
        if node.type and node.major is not None and node.minor is not None:
            address = probe.pci_of(node.type, node.major, node.minor)
            if address:
                addresses.add(address)
    return tuple(sorted(addresses))


def drift(pinned: Pin, current: Pin) -> str | None:
    """Why the name now means other hardware than was pinned, in words; None while it means the same.

    The best identity that both sides know decides alone: a card keeps its UUID when its node numbers change.
    """
    for what, before, now in (
        ("UUID", pinned.uuids, current.uuids),
        ("PCI address", pinned.pci, current.pci),
    ):
        if before and now:
            return None if set(before) == set(now) else f"{what} was {_list(before)}, is now {_list(now)}"
    if set(pinned.nodes) == set(current.nodes):
        return None
    return f"device nodes were {_list(map(_show, pinned.nodes))}, are now {_list(map(_show, current.nodes))}"


def _list(texts: Iterable[str]) -> str:
    return ", ".join(texts) or "none"


def _show(node: NodeId) -> str:
    return node.path if node.major is None else f"{node.path} ({node.type or '?'} {node.major}:{node.minor})"


def overlap(a: Pin, b: Pin) -> tuple[str, ...]:
    """Host paths (as `a` has them) of the own device nodes that both open, sorted.

    Nodes are the same at the same path, or with the same numbers where both sides know them. A MIG slice
    opens its parent's node, so that it overlaps with the parent, with `all` and with the parent's other
    slices.
    """
    paths = {clean(node.path) for node in b.nodes}
    return tuple(
        sorted(
            node.path
            for node in a.nodes
            if clean(node.path) in paths or any(_same_numbers(node, other) for other in b.nodes)
        )
    )


def _same_numbers(a: NodeId, b: NodeId) -> bool:
    if a.major is None or b.major is None or (a.major, a.minor) != (b.major, b.minor):
        return False
    return a.type == b.type or not a.type or not b.type
