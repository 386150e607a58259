"""Specs that no longer fit the host: what a driver update, a reboot or a reconfiguration leaves behind. Pure.

A daemon does not notice most of it: it injects a spec's device numbers without comparing them with the
host's, and a mount whose source is gone fails the container's start long after the cause.
Source: NVIDIA/nvidia-container-toolkit's generator (what its specs name), the Go library's injection.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from cdi.core.catalog import SpecFile
from cdi.core.edits import ContainerEdits, DeviceNode, Hook, Mount
from cdi.core.model import Spec
from cdi.core.resolve import HostNode, Probe

NVIDIA_KIND = "nvidia.com/gpu"
_SHOWN = 3
_HOST_DRIVER = re.compile(r"--host-driver-version=(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)", re.ASCII)
_DRIVER_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)", re.ASCII)


class StaleCode(StrEnum):
    """What no longer fits; stable."""

    NODE_MISSING = "spec-node-missing"
    NODE_CHANGED = "spec-node-changed"
    MOUNT_MISSING = "spec-mount-missing"
    HOOK_MISSING = "spec-hook-missing"
    DRIVER_CHANGED = "spec-driver-changed"
    LEFTOVER = "spec-leftover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """One way in which the spec at `path` does not fit; `detail` in words."""

    path: str
    kind: str
    code: StaleCode
    detail: str


def stale(files: Iterable[SpecFile], probe: Probe, *, driver_version: str | None) -> tuple[Stale, ...]:
    """Everything in these specs that the host does not bear out, one entry for each file and code.

    Args:
        files: the specs that daemons read.
        probe: the host.
        driver_version: of the loaded NVIDIA kernel module; None when none is loaded, and then not compared.
    """
    found: list[Stale] = []
    for file in files:
        faults: dict[StaleCode, dict[str, None]] = {}
        for code, detail in _faults(file.spec, probe, driver_version):
            faults.setdefault(code, {})[detail] = None
        found += [
            Stale(path=file.path, kind=file.spec.kind, code=code, detail=_few(tuple(details)))
            for code, details in faults.items()
        ]
    return tuple(found)


def leftovers(files: Sequence[SpecFile], ours: Iterable[str]) -> tuple[Stale, ...]:
    """Specs outside the directories `ours` that define again, and win with, what one in `ours` defines.

    A daemon that reads both directories takes the leftover's devices, whatever the newer file says.
    """
    directories = tuple(f"{directory.rstrip('/')}/" for directory in ours)
    mine: dict[str, SpecFile] = {}
    for file in files:
        if file.path.startswith(directories):
            mine.update((str(file.spec.qualified(device)), file) for device in file.spec.devices)
    found: list[Stale] = []
    for file in files:
        if file.path.startswith(directories):
            continue
        names = [str(file.spec.qualified(device)) for device in file.spec.devices]
        again = [name for name in names if name in mine and mine[name].priority < file.priority]
        if again:
            detail = f"it defines {_few(again)} again and wins over {mine[again[0]].path}"
            found.append(Stale(path=file.path, kind=file.spec.kind, code=StaleCode.LEFTOVER, detail=detail))
    return tuple(found)


def _faults(spec: Spec, probe: Probe, driver_version: str | None) -> Iterator[tuple[StaleCode, str]]:
    everything = (spec.container_edits, *(device.container_edits for device in spec.devices))
    for edits in everything:
        for node in edits.device_nodes:
            yield from _node_faults(node, probe)
        for mount in edits.mounts:
            if mount.host_path.startswith("/") and probe.lstat(mount.host_path) is None:
                yield StaleCode.MOUNT_MISSING, mount.host_path
        for hook in edits.hooks:
            if hook.path.startswith("/") and probe.lstat(hook.path) is None:
                yield StaleCode.HOOK_MISSING, hook.path
    if spec.kind == NVIDIA_KIND and driver_version is not None:
        for version in sorted(_driver_versions(everything) - {driver_version}):
            yield StaleCode.DRIVER_CHANGED, f"it is for driver {version}, and {driver_version} is loaded"


def _node_faults(node: DeviceNode, probe: Probe) -> Iterator[tuple[StaleCode, str]]:
    found = probe.lstat(node.source)
    if found is None:
        yield StaleCode.NODE_MISSING, node.source
    elif not isinstance(found, HostNode):
        yield StaleCode.NODE_CHANGED, f"{node.source} is a {found}"
    elif node.major and (node.major, node.minor) != (found.major, found.minor):
        spec, host = f"{node.major}:{node.minor}", f"{found.major}:{found.minor}"
        yield StaleCode.NODE_CHANGED, f"{node.source} is {host}, and the spec says {spec}"


def _driver_versions(everything: Iterable[ContainerEdits]) -> set[str]:
    """The driver versions that hooks and the names of mounted libraries tell."""
    found: set[str] = set()
    for edits in everything:
        for text in _texts(edits.hooks, edits.mounts):
            found.update(_HOST_DRIVER.findall(text), _DRIVER_LIBRARY.findall(text))
    return found


def _texts(hooks: Iterable[Hook], mounts: Iterable[Mount]) -> Iterator[str]:
    for hook in hooks:
        yield from hook.args
    for mount in mounts:
        yield mount.host_path


def _few(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(islice(items, _SHOWN)) + more


REMEDIES: Mapping[StaleCode, str] = {
    StaleCode.NODE_MISSING: "load the driver, then 'renet setup'; if the devices are gone, remove the file",
    StaleCode.NODE_CHANGED: "'renet setup' writes the spec anew",
    StaleCode.MOUNT_MISSING: "'renet setup' writes the spec anew",
    StaleCode.HOOK_MISSING: "install the NVIDIA container toolkit again, then 'renet setup'",
    StaleCode.DRIVER_CHANGED: "'renet setup' writes the spec anew",
    StaleCode.LEFTOVER: "remove the file: engines that read its directory take it instead",
}
"""What to do about each."""
