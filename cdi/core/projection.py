"""A repo's spec directory: of the machine's specs, the granted devices and nothing else. Pure.

The repo's daemon reads only these files, so that it cannot resolve a device that is not granted, whatever
asks for it. Each is checked to load, with the same meaning, in every library that will read it before it is
handed out: a file that a daemon refuses would take all its devices away, and some files crash it.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from cdi.core.catalog import Catalog, CatalogDevice
from cdi.core.encode import encode_spec
from cdi.core.library import SPEC_VERSIONS, Library
from cdi.core.model import Device, Spec
from cdi.core.names import QualifiedName
from cdi.core.problems import SpecError
from cdi.core.rules import required_version
from cdi.core.spec import parse_spec

BUILDKIT_PREFIX = "org.mobyproject.buildkit.device."
"""Annotations by which a spec lets BuildKit give its devices to builds that nobody granted them to."""


class Projection(Mapping[str, bytes]):
    """File contents by file name, and for each device that no file can hold, why.

    Args:
        files: the content of each file.
        left_out: the devices that were asked for and are in no file, each with the reason in words.
    """

    def __init__(self, files: Mapping[str, bytes], left_out: Mapping[QualifiedName, str]) -> None:
        self._files = MappingProxyType(dict(files))
        self.left_out: Mapping[QualifiedName, str] = MappingProxyType(dict(left_out))

    def __getitem__(self, name: str) -> bytes:
        return self._files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def project(
    catalog: Catalog, names: Collection[QualifiedName], *, libraries: Sequence[Library]
) -> Projection:
    """The spec files that define exactly `names`, for daemons that read them by `libraries`.

    One file for each source spec: its top-level edits, its granted devices in its order, the lowest
    `cdiVersion` that declares them, no BuildKit annotations. A device that one of the libraries cannot load
    is left out and listed.
    """
    left_out = {
        name: "the machine's CDI specs do not define it" for name in names if name not in catalog.devices
    }
    sources: dict[str, list[CatalogDevice]] = {}
    for name in names:
        device = catalog.devices.get(name)
        if device is not None:
            sources.setdefault(device.path, []).append(device)
    files: dict[str, bytes] = {}
    for path in sorted(sources):
        granted = sources[path]
        content = _file(granted[0].spec, granted, libraries)
        if not isinstance(content, bytes):
            good = []
            for device in granted:
                alone = _file(device.spec, [device], libraries)
                if isinstance(alone, bytes):
                    good.append(device)
                else:
                    left_out[device.name] = alone
            content = _file(granted[0].spec, good, libraries) if good else ""
        if isinstance(content, bytes):
            files[file_name(granted[0].spec, path)] = content
        elif content:
            left_out.update((device.name, content) for device in granted if device.name not in left_out)
    return Projection(files, left_out)


def file_name(spec: Spec, path: str) -> str:
    """The name of the file that holds devices of the spec at `path`: stable, another for every source."""
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{spec.vendor[:60]}-{spec.class_[:60]}-{digest}.json"


def _file(spec: Spec, granted: Sequence[CatalogDevice], libraries: Sequence[Library]) -> bytes | str:
    """The file, or why one of the libraries would not load it."""
    wanted = {device.name.device for device in granted}
    narrowed = replace(
        spec,
        annotations=_without_buildkit(spec.annotations),
        devices=tuple(_device(device) for device in spec.devices if device.name in wanted),
    )
    narrowed = replace(narrowed, cdi_version=required_version(narrowed))
    content = encode_spec(narrowed)
    for library in libraries:
        fault = _fault(content, narrowed, library)
        if fault:
            return f"CDI library {library} ({library.engine}) cannot load it: {fault}"
    return content


def _device(device: Device) -> Device:
    return replace(device, annotations=_without_buildkit(device.annotations))


def _without_buildkit(annotations: Mapping[str, str]) -> Mapping[str, str]:
    kept = {
        key: value for key, value in annotations.items() if not key.casefold().startswith(BUILDKIT_PREFIX)
    }
    return MappingProxyType(kept)


def _fault(content: bytes, spec: Spec, library: Library) -> str | None:
    newest = library.spec_versions[-1]
    if SPEC_VERSIONS.index(spec.cdi_version) > SPEC_VERSIONS.index(newest):
        return f"it uses features of CDI {spec.cdi_version}, and that library knows {newest} at most"
    try:
        read = parse_spec(content, library=library)
    except SpecError as exc:
        return "; ".join(problem.message for problem in exc.problems[:3])
    return None if read == spec else "it would be read back with another meaning"
