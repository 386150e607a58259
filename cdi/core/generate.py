"""Specs of our own vendor: render nodes of any driver, and AMD cards. Pure.

Nodes are written without numbers, so that a daemon takes them from the host at each start and they cannot
grow stale. The mode is left to the library; the group goes into the node and into the container's groups,
because from CDI 1.1.0 on the node has the host's mode, and then users without that group cannot open it.
Source: CDI SPEC.md; kernel documentation of `/dev/kfd` and of DRM render nodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cdi.core.edits import ContainerEdits, DeviceNode
from cdi.core.model import Device, Spec
from cdi.core.resolve import HostNode
from cdi.core.rules import required_version

VENDOR = "rediacc.io"
DRI_KIND = f"{VENDOR}/dri"
AMD_KIND = f"{VENDOR}/amd"
ALL = "all"
_OTHERS_MAY = 0o006
_PERMISSIONS = "rw"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedNode:
    """A host device node that becomes a device, or part of one, called `name`."""

    name: str
    path: str
    node: HostNode


def dri_spec(render_nodes: Iterable[NamedNode]) -> Spec | None:
    """`rediacc.io/dri`: one device for each render node; None without any."""
    devices = tuple(Device(name=each.name, container_edits=_edits((each,))) for each in render_nodes)
    return _spec(DRI_KIND, devices, ())


def amd_spec(kfd: NamedNode, cards: Sequence[NamedNode]) -> Spec | None:
    """`rediacc.io/amd`: one device for each card, and `all`; None without cards.

    `/dev/kfd` serves all cards and decides by their render nodes who may use which, so it is every device's.
    """
    devices = [Device(name=each.name, container_edits=_edits((each,))) for each in cards]
    if devices:
        devices.append(Device(name=ALL, container_edits=_edits(cards)))
    return _spec(AMD_KIND, tuple(devices), (kfd,))


def _spec(kind: str, devices: tuple[Device, ...], common: Sequence[NamedNode]) -> Spec | None:
    if not devices:
        return None
    spec = Spec(cdi_version="", kind=kind, devices=devices, container_edits=_edits(common))
    return replace(spec, cdi_version=required_version(spec))


def _edits(nodes: Sequence[NamedNode]) -> ContainerEdits:
    return ContainerEdits(
        device_nodes=tuple(
            DeviceNode(path=each.path, permissions=_PERMISSIONS, gid=_group(each.node)) for each in nodes
        ),
        additional_gids=tuple(sorted({gid for each in nodes if (gid := _group(each.node)) is not None})),
    )


def _group(node: HostNode) -> int | None:
    """The group that one must have to open the node; None when everybody or only root may."""
    if node.mode & _OTHERS_MAY == _OTHERS_MAY or node.gid == 0:
        return None
    return node.gid
