"""A CDI spec as a value: what a file of the library's format holds. Pure.

Source: CDI SPEC.md "CDI JSON Specification".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cdi.core.edits import NO_EDITS, ContainerEdits
from cdi.core.names import QualifiedName

NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One named device and what it changes in a container."""

    name: str
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_ANNOTATIONS, hash=False)
    container_edits: ContainerEdits = NO_EDITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One file: devices of one kind, and the edits that every one of them brings along."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...]
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_ANNOTATIONS, hash=False)
    container_edits: ContainerEdits = NO_EDITS

    @property
    def vendor(self) -> str:
        """What stands before the kind's first `/`."""
        return self.kind.partition("/")[0]

    @property
    def class_(self) -> str:
        """What stands behind the kind's first `/`."""
        return self.kind.partition("/")[2]

    def qualified(self, device: Device) -> QualifiedName:
        """The name by which `device` is requested."""
        return QualifiedName(self.vendor, self.class_, device.name)
