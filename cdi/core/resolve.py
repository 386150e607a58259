"""From requested names to host device nodes and all that a container gets. Pure; the host is a `Probe`.

Source: the Go library's injection (its cache and container edits), measured in releases 0.6.2 to 1.1.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from base.errors import MalformedError, RefusedError
from cdi.core.catalog import Catalog, CatalogDevice
from cdi.core.edits import ContainerEdits, DeviceNode
from cdi.core.library import Library
from cdi.core.names import QualifiedName
from cdi.core.paths import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNode:
    """What `lstat` says of a device node or FIFO: `type` is b, c or p; `mode` are its permission bits."""

    type: str
    major: int
    minor: int
    mode: int
    gid: int = 0


class NotANode(StrEnum):
    """What lies there instead of a device node; the library does not follow symbolic links."""

    SYMLINK = "symbolic link"
    DIRECTORY = "directory"
    FILE = "regular file"
    OTHER = "no device node"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """A card as the NVIDIA kernel driver names it: PCI address, UUID (`GPU-...`), device minor."""

    pci: str
    uuid: str
    minor: int


class Probe(Protocol):
    """What the rules need to know of the host. No method raises: what cannot be read is not there."""

    def lstat(self, path: str) -> HostNode | NotANode | None:
        """What lies at an absolute path, without following a link at its end; None when nothing does."""
        ...

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The cards that the NVIDIA kernel driver shows, by PCI address; empty without it."""
        ...

    def pci_of(self, node_type: str, major: int, minor: int) -> str | None:
        """The PCI address of the device behind a node's numbers, if it has one."""
        ...


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class NodeId:
    """A host device node: cleaned path, and type and numbers as a container would get them.

    `type` is empty and the numbers are None while the node is missing and its spec does not give them.
    """

    path: str
    type: str = ""
    major: int | None = None
    minor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEdits:
    """Everything a container gets for a request, nodes filled in from the host, in the library's order."""

    names: tuple[str, ...]
    edits: ContainerEdits


class ResolveError(RefusedError):
    """The request cannot be served; the message is the library's. `unresolved` lists unknown names."""

    code = "unresolvable"

    def __init__(self, message: str, *, unresolved: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.unresolved = unresolved


def own_nodes(device: CatalogDevice, probe: Probe) -> tuple[NodeId, ...]:
    """The host nodes that this device opens and that its spec does not open for every device, sorted.

    They are what exclusivity is about: a node from the spec's top-level edits (`/dev/nvidiactl`, `/dev/kfd`)
    is common to all devices of the spec and does not count.
    """
    own = device.own_sources
    nodes = {
        clean(node.source): _node_id(node, probe)
        for node in device.device.container_edits.device_nodes
        if clean(node.source) in own
    }
    return tuple(sorted(nodes.values(), key=lambda node: node.path))


def _node_id(node: DeviceNode, probe: Probe) -> NodeId:
    path = clean(node.source)
    if node.type and (node.major or node.type == "p"):
        return NodeId(path=path, type=_host_type(node.type), major=node.major, minor=node.minor)
    found = probe.lstat(node.source)
    type_ = found.type if isinstance(found, HostNode) else _host_type(node.type)
    if node.major:
        return NodeId(path=path, type=type_, major=node.major, minor=node.minor)
    if isinstance(found, HostNode):
        return NodeId(path=path, type=type_, major=found.major, minor=found.minor)
    return NodeId(path=path, type=type_)


def _host_type(node_type: str) -> str:
    """`u` is an unbuffered character device: the same host node as `c`."""
    return "c" if node_type == "u" else node_type


def resolve(
    names: Sequence[str | QualifiedName],
    catalog: Catalog,
    probe: Probe,
    *,
    library: Library = Library.V1_0_1,
) -> ResolvedEdits:
    """All edits of the named devices, in request order; a spec's own edits come before its first device's.

    Raises:
        ResolveError: a name is unknown (all unknown ones are reported), or a device node cannot be made.
    """
    found = [(str(name), _look_up(name, catalog)) for name in names]
    unresolved = tuple(text for text, device in found if device is None)
    if unresolved:
        raise ResolveError(
            f"unresolvable CDI devices {', '.join(unresolved)}",
            unresolved=unresolved,
            hint="'renet cdi list' shows the names that the machine's specs define",
        )
    merged = ContainerEdits()
    seen: set[str] = set()
    for _, device in found:
        if device is None:  # told apart above
            continue
        if device.path not in seen:
            seen.add(device.path)
            merged = append(merged, device.spec.container_edits)
        merged = append(merged, device.device.container_edits)
    nodes = tuple(fill_from_host(node, probe, library=library) for node in merged.device_nodes)
    return ResolvedEdits(names=tuple(text for text, _ in found), edits=replace(merged, device_nodes=nodes))


def _look_up(name: str | QualifiedName, catalog: Catalog) -> CatalogDevice | None:
    try:
        return catalog.devices.get(name if isinstance(name, QualifiedName) else QualifiedName.parse(name))
    except MalformedError:
        return None


def append(edits: ContainerEdits, more: ContainerEdits) -> ContainerEdits:
    """Both, one after the other; of two resource director settings the later counts."""
    return ContainerEdits(
        env=edits.env + more.env,
        device_nodes=edits.device_nodes + more.device_nodes,
        mounts=edits.mounts + more.mounts,
        hooks=edits.hooks + more.hooks,
        intel_rdt=more.intel_rdt or edits.intel_rdt,
        additional_gids=edits.additional_gids + more.additional_gids,
        net_devices=edits.net_devices + more.net_devices,
    )


def fill_from_host(node: DeviceNode, probe: Probe, *, library: Library = Library.V1_0_1) -> DeviceNode:
    """The node with type and numbers, and from 1.1.0 on its mode, from the host where the spec lacks them.

    A spec that gives both type and major needs no host node; one that gives the major alone keeps it without
    comparing it to the host's.

    Raises:
        ResolveError: the host node is missing, is no device node, or has another type than the spec says.
    """
    if node.type and (node.major or node.type == "p"):
        return node
    source = node.source
    found = probe.lstat(source)
    if not isinstance(found, HostNode):
        why = "no such file or directory" if found is None else "not a device node"
        raise ResolveError(
            f'failed to inject devices: failed to stat CDI host device "{source}": {why}',
            hint="the spec is out of date, or the driver is not loaded",
        )
    if node.type and node.type != found.type:
        raise ResolveError(
            f'failed to inject devices: CDI device ("{node.path}", "{source}"), '
            f"host type mismatch ({node.type}, {found.type})"
        )
    filled = replace(node, type=found.type)
    if not node.major and found.type != "p":
        filled = replace(filled, major=found.major, minor=found.minor)
    if filled.file_mode is None and library.at_least(Library.V1_1_0):
        filled = replace(filled, file_mode=found.mode)
    return filled
