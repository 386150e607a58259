"""What can be granted on a machine, what each name opens, and who holds it."""

from dataclasses import dataclass

from base.clock import Clock
from base.layout import Layout
from cdi.core.catalog import CatalogDevice
from cdi.core.names import QualifiedName
from grants.core.machine import GrantState
from grants.core.model import Sharing
from machine.gpu import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A repo, by name, that holds a live grant."""

    repo: str
    exclusive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A name that can be granted, the host paths of the device nodes that are its own, its live grants."""

    name: QualifiedName
    opens: tuple[str, ...]
    holdings: tuple[Holding, ...]


def offered(layout: Layout, clock: Clock) -> tuple[Offered, ...]:
    """Every name that the machine's specs define, sorted.

    Raises:
        RdcError: the grants or gate.yaml cannot be read.
    """
    gpu = Gpu(layout, clock)
    holdings: dict[QualifiedName, list[Holding]] = {}
    for grant, status in gpu.list(None):
        if status.state is GrantState.LIVE:
            holding = Holding(repo=gpu.name_of(grant.repo), exclusive=grant.sharing is Sharing.EXCLUSIVE)
            holdings.setdefault(grant.device, []).append(holding)
    devices = gpu.catalog().devices
    return tuple(
        Offered(name=name, opens=_opens(devices[name]), holdings=tuple(holdings.get(name, ())))
        for name in sorted(devices)
    )


def _opens(device: CatalogDevice) -> tuple[str, ...]:
    """Its own nodes; for a device without any, those that its whole spec opens."""
    own = sorted(device.own_sources)
    return tuple(own or sorted({node.source for node in device.spec.container_edits.device_nodes}))
