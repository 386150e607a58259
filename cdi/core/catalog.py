"""The devices that a set of spec directories defines: precedence, conflicts, look-up. Pure.

Source: CDI SPEC.md and the Go library's cache. Directories count upwards: of a device that two directories
define, the later one's definition holds, device by device. Two definitions in one directory hide the device
altogether, also where a later directory defines it once more.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from types import MappingProxyType

from cdi.core.edits import DeviceNode
from cdi.core.model import Device, Spec
from cdi.core.names import QualifiedName
from cdi.core.paths import clean

_FUZZY_CANDIDATES = 500
"""How many names are compared letter by letter, which takes about a millisecond for twenty."""

_SHORT_MIN = 4
"""How much of a device's name must be written to be taken for its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """A spec that was loaded, where it lay, and the index of its directory: a higher `priority` wins."""

    path: str
    priority: int
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogDevice:
    """A device that can be requested, with the spec that defines it and that spec's path."""

    name: QualifiedName
    spec: Spec
    device: Device
    path: str

    @property
    def own_sources(self) -> frozenset[str]:
        """Cleaned host paths of the device's own nodes; those that its whole spec opens do not count."""
        return _sources(self.device.container_edits.device_nodes) - _sources(
            self.spec.container_edits.device_nodes
        )


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Devices by name, and for each file that could not be used as it is, why.

    `unloaded` are the files that could not be loaded, `conflicts` the names that several files define.
    """

    devices: Mapping[QualifiedName, CatalogDevice]
    errors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unloaded: frozenset[str] = frozenset()
    conflicts: frozenset[QualifiedName] = frozenset()

    @classmethod
    def of(cls, files: Iterable[SpecFile], errors: Mapping[str, Sequence[str]] | None = None) -> "Catalog":
        """The catalog of loaded files, in the order of their directories and names.

        Args:
            files: what could be loaded.
            errors: by path, why other files could not.
        """
        found: dict[QualifiedName, tuple[SpecFile, Device]] = {}
        collected = {path: list(messages) for path, messages in (errors or {}).items()}
        conflicts: set[QualifiedName] = set()
        for file in files:
            for device in file.spec.devices:
                name = file.spec.qualified(device)
                other = found.get(name)
                if other is None or file.priority > other[0].priority:
                    found[name] = (file, device)
                elif file.priority == other[0].priority:
                    conflicts.add(name)
                    message = f'conflicting device "{name}" (specs "{file.path}", "{other[0].path}")'
                    for path in (file.path, other[0].path):
                        collected.setdefault(path, []).append(message)
        devices = {
            name: CatalogDevice(name=name, spec=file.spec, device=device, path=file.path)
            for name, (file, device) in found.items()
            if name not in conflicts
        }
        return cls(
            devices=MappingProxyType(devices),
            errors=MappingProxyType({path: tuple(messages) for path, messages in collected.items()}),
            unloaded=frozenset(errors or ()),
            conflicts=frozenset(conflicts - devices.keys()),
        )

    def near(self, name: QualifiedName, limit: int = 5) -> tuple[QualifiedName, ...]:
        """Names that somebody who asked for `name` may have meant, best first, at most `limit`.

        The same text in other case comes first, then what it may be short for, such as the start of a UUID,
        then the same device of other kinds, then names that look alike.
        """
        wanted = str(name).casefold()
        longer = sorted(
            other
            for other in self.devices
            if len(name.device) >= _SHORT_MIN and str(other).casefold().startswith(wanted) and other != name
        )
        same = [other for other in self.devices if str(other).casefold() == wanted and other != name]
        twins = [other for other in self.devices if other.device == name.device and other.kind != name.kind]
        pool = {str(other): other for other in islice(self.devices, _FUZZY_CANDIDATES)}
        alike = [pool[text] for text in difflib.get_close_matches(str(name), pool, n=limit, cutoff=0.6)]
        kin = sorted(other for other in self.devices if other.kind == name.kind)
        ordered = dict.fromkeys([*same, *longer, *sorted(twins), *alike, *kin])
        ordered.pop(name, None)
        return tuple(islice(ordered, limit))

    def aliases(self, name: QualifiedName) -> tuple[QualifiedName, ...]:
        """Other names of the same kind that open exactly the same device nodes of their own, sorted.

        Empty for an unknown name and for a device without nodes of its own.
        """
        device = self.devices.get(name)
        if device is None or not device.own_sources:
            return ()
        group = self._by_nodes.get((name.kind, device.own_sources), ())
        return tuple(other for other in group if other != name)

    def within(self, name: QualifiedName) -> tuple[QualifiedName, ...]:
        """Other names of the same kind all of whose own nodes `name` opens too, sorted."""
        device = self.devices.get(name)
        if device is None:
            return ()
        mine = device.own_sources
        return tuple(
            other
            for (kind, sources), group in sorted(self._by_nodes.items(), key=lambda item: item[1])
            if kind == name.kind and sources and sources <= mine
            for other in group
            if other != name
        )

    @cached_property
    def _by_nodes(self) -> Mapping[tuple[str, frozenset[str]], tuple[QualifiedName, ...]]:
        groups: dict[tuple[str, frozenset[str]], list[QualifiedName]] = {}
        for name, device in self.devices.items():
            groups.setdefault((name.kind, device.own_sources), []).append(name)
        return {key: tuple(sorted(names)) for key, names in groups.items()}


def _sources(nodes: Iterable[DeviceNode]) -> frozenset[str]:
    return frozenset(clean(node.source) for node in nodes)
