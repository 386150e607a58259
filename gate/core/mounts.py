"""One reading of every spelling of a mount: Binds, Mounts, Volumes, Tmpfs. Pure.

Source: moby's Linux mount parser (`SOURCE:TARGET[:MODE]`, at most three parts, cleaned lexically), Docker
Engine API type `mount.Mount`; facts page on gates, section 2.C.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gate.core.denial import Broken, Rule, broken, show, show_options
from gate.core.hostpath import clean_path, inside
from gate.core.kinds import MAX_ITEMS
from gate.core.model import Config, HostConfig, Mount, edited
from gate.core.target import OBJECT_NAME

_PRIVATE = frozenset({"", "private", "rprivate"})
_PROPAGATIONS = frozenset({"private", "rprivate", "shared", "rshared", "slave", "rslave"})
_MODES = {
    "ro": "access", "rw": "access", "z": "label", "Z": "label", "nocopy": "copy",
    "consistent": "consistency", "cached": "consistency", "delegated": "consistency",
    "default": "consistency",
} | dict.fromkeys(_PROPAGATIONS, "propagation")  # fmt: skip
_TMPFS_FLAGS = frozenset({
    "rw", "ro", "exec", "noexec", "nosuid", "nodev", "sync", "async", "dirsync", "atime", "noatime",
    "diratime", "nodiratime", "relatime", "norelatime", "strictatime", "nostrictatime",
})  # fmt: skip
_MAX_TMPFS_OPTIONS = 4096
"""mount(2) takes one page."""
_TMPFS_VALUES = re.compile(r"(size|mode|uid|gid|nr_inodes|nr_blocks)=[0-9]+[kmgtKMGT%]?\Z")
_RUNTIME_TARGETS = ("/var/run/nvidia-container-devices", "/run/nvidia-container-devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class BindMount:
    """A host path in the container. `source` is absolute and clean."""

    source: str
    target: str
    writable: bool
    propagation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeMount:
    """A named volume, which may or may not exist yet."""

    name: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPlan:
    """All mounts of a request read, and the request with each in canonical spelling."""

    binds: tuple[BindMount, ...]
    volumes: tuple[VolumeMount, ...]
    faults: tuple[Broken, ...]
    host_config: HostConfig


def read_mounts(host: HostConfig, config: Config) -> MountPlan:
    """Read Binds, Mounts, Tmpfs, Volumes and the volume driver. What cannot be read is a fault."""
    found: list[BindMount | VolumeMount] = []
    faults: list[Broken] = []
    if len(host.binds or ()) > MAX_ITEMS:
        too_many = broken(Rule.TOO_MANY, f"more than {MAX_ITEMS} binds are not allowed")
        return MountPlan(binds=(), volumes=(), faults=(too_many,), host_config=host)
    binds = [_read_bind(spelled, found, faults) for spelled in host.binds or ()]
    mounts = [_read_mount(mount, found, faults) for mount in host.mounts or ()]
    faults += _tmpfs_faults(host)
    targets = [*(config.volumes or ()), *(host.tmpfs or ()), *(item.target for item in found)]
    faults += [fault for target in targets for fault in _target_faults(target)]
    if host.volume_driver not in {"", "local"}:
        faults.append(broken(Rule.VOLUME_DRIVER, f"volume driver {show(host.volume_driver)} is not allowed"))
    changes = {
        name: tuple(canonical)
        for name, canonical in (("binds", binds), ("mounts", mounts))
        if tuple(canonical) != (getattr(host, name) or ())
    }
    return MountPlan(
        binds=tuple(item for item in found if isinstance(item, BindMount)),
        volumes=tuple(item for item in found if isinstance(item, VolumeMount)),
        faults=tuple(faults),
        host_config=edited(host, changes),
    )


def _read_bind(spelled: str, found: list[BindMount | VolumeMount], faults: list[Broken]) -> str:
    """One entry of Binds; returns its canonical spelling."""
    parts = spelled.split(":", 3)
    tokens = _modes(parts[2]) if len(parts) == 3 else {}
    if len(parts) == 1:
        if not _absolute(spelled):
            faults.append(_unreadable(spelled))
        return clean_path(spelled)
    source, target = parts[0], parts[1]
    two_part_mode = len(parts) == 2 and _modes(target) is not None
    if tokens is None or len(parts) > 3 or two_part_mode or not source or not _absolute(target):
        faults.append(_unreadable(spelled))
        return spelled
    target = clean_path(target)
    canonical = ":".join((target, *parts[2:]))
    if not source.startswith("/"):
        if OBJECT_NAME.match(source):
            found.append(VolumeMount(name=source, target=target))
        else:
            faults.append(_unreadable(spelled))
        return f"{source}:{canonical}"
    bind = BindMount(
        source=clean_path(source),
        target=target,
        writable=tokens.get("access") != "ro",
        propagation=tokens.get("propagation", ""),
    )
    faults += _propagation_faults(bind)
    if "\0" in source:
        faults.append(_unreadable(spelled))
    found.append(bind)
    return f"{bind.source}:{canonical}"


def _modes(text: str) -> dict[str, str] | None:
    """The mode's tokens by kind, or None where the daemon would refuse it."""
    kinds: dict[str, str] = {}
    for token in text.split(","):
        kind = _MODES.get(token)
        if kind is None or kind in kinds:
            return None
        kinds[kind] = token
    return kinds


def _read_mount(mount: Mount, found: list[BindMount | VolumeMount], faults: list[Broken]) -> Mount:
    """One entry of Mounts; returns it in canonical spelling."""
    if not _absolute(mount.target):
        faults.append(_unreadable(f"{mount.type_} mount to {mount.target}"))
    faults += _volume_option_faults(mount)
    if mount.type_ == "bind":
        return _read_bind_mount(mount, found, faults)
    if mount.type_ == "volume":
        if mount.source and not OBJECT_NAME.match(mount.source):
            faults.append(_unreadable(f"volume {mount.source}"))
        elif mount.source:
            found.append(VolumeMount(name=mount.source, target=mount.target))
    elif mount.type_ == "tmpfs":
        faults += _tmpfs_option_faults(mount)
    elif mount.type_ != "image":
        faults.append(broken(Rule.MOUNT_TYPE, f"mount type {show(mount.type_)} is not allowed"))
    faults += _subpath_faults(mount)
    return mount


def _read_bind_mount(mount: Mount, found: list[BindMount | VolumeMount], faults: list[Broken]) -> Mount:
    if not mount.source.startswith("/") or "\0" in mount.source:
        faults.append(_unreadable(f"bind of {mount.source}"))
        return mount
    options = mount.bind_options
    bind = BindMount(
        source=clean_path(mount.source),
        target=mount.target,
        writable=not mount.read_only or (options is not None and options.read_only_non_recursive),
        propagation="" if options is None else options.propagation,
    )
    faults += _propagation_faults(bind)
    found.append(bind)
    return replace(mount, source=bind.source)


def _volume_option_faults(mount: Mount) -> Iterator[Broken]:
    """An inline driver mounts anything by another name, whatever the mount's type says."""
    driver = None if mount.volume_options is None else mount.volume_options.driver_config
    if driver is None:
        return
    if driver.name not in {"", "local"}:
        yield broken(Rule.VOLUME_DRIVER, f"volume driver {show(driver.name)} is not allowed")
    if driver.options:
        yield broken(Rule.VOLUME_OPTION, f"volume options {show_options(driver.options)} are not allowed")


def _subpath_faults(mount: Mount) -> Iterator[Broken]:
    for options in (mount.volume_options, mount.image_options):
        subpath = "" if options is None else options.subpath
        if subpath.startswith("/") or ".." in subpath.split("/") or "\0" in subpath:
            yield broken(Rule.MOUNT_MALFORMED, f"subpath {show(subpath)} leads out of the mount")


def _propagation_faults(bind: BindMount) -> Iterator[Broken]:
    if bind.propagation not in _PRIVATE:
        yield broken(Rule.MOUNT_PROPAGATION, f"bind propagation {show(bind.propagation)} is not allowed")


def _target_faults(target: str) -> Iterator[Broken]:
    cleaned = clean_path(target)
    if any(inside(cleaned, reserved) for reserved in _RUNTIME_TARGETS):
        yield broken(Rule.MOUNT_TARGET, f"mount target {show(target)} is not allowed")


def _tmpfs_faults(host: HostConfig) -> Iterator[Broken]:
    for target, text in (host.tmpfs or {}).items():
        if not _absolute(target):
            yield _unreadable(f"tmpfs on {target}")
        if len(text) > _MAX_TMPFS_OPTIONS:
            yield broken(Rule.TMPFS_OPTION, f"tmpfs options {show(text)} are longer than a page")
            continue
        for option in text.split(",") if text else ():
            if option not in _TMPFS_FLAGS and not _TMPFS_VALUES.match(option):
                yield broken(Rule.TMPFS_OPTION, f"tmpfs option {show(option)} is not allowed")


def _tmpfs_option_faults(mount: Mount) -> Iterator[Broken]:
    options = None if mount.tmpfs_options is None else mount.tmpfs_options.options
    for option in options or ():
        text = "=".join(option or ())
        if text not in {"exec", "noexec"}:
            yield broken(Rule.TMPFS_OPTION, f"tmpfs option {show(text)} is not allowed")


def _absolute(target: str) -> bool:
    return target.startswith("/") and clean_path(target) != "/" and "\0" not in target


def _unreadable(spelled: str) -> Broken:
    return broken(Rule.MOUNT_MALFORMED, f"mount {show(spelled)} cannot be read")
