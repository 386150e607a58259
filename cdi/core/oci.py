"""Applying container edits to an OCI runtime spec, as the library does. Pure.

Source: OCI runtime spec (config, config-linux), and results of the Go library's releases 0.6.2 to 1.1.0.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from cdi.core.edits import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount
from cdi.core.library import Library
from cdi.core.paths import clean

OciSpec = dict[str, Any]
"""An OCI runtime spec as JSON has it; only the keys that edits touch are read."""


def apply(
    edits: ContainerEdits, oci_spec: Mapping[str, Any], *, library: Library = Library.V1_0_1
) -> OciSpec:
    """A copy of `oci_spec` with the edits made; device nodes must have been filled in from the host.

    Environment variables of one name replace each other, those of the container's own list stay; a node or
    mount at a path that is taken replaces what is there; cgroup rules and hooks are appended each time;
    mounts are sorted by depth; group 0 and repeated groups are left out.
    """
    spec: OciSpec = copy.deepcopy(dict(oci_spec))
    if edits.env:
        _add_env(spec, edits.env)
    for node in edits.device_nodes:
        _add_node(spec, node)
    for device in edits.net_devices:
        interfaces = spec.setdefault("linux", {}).setdefault("netDevices", {})
        interfaces[device.host_interface_name] = {"name": device.name}
    if edits.mounts:
        _add_mounts(spec, edits.mounts, library)
    for hook in edits.hooks:
        spec.setdefault("hooks", {}).setdefault(hook.hook_name, []).append(_hook(hook))
    if edits.intel_rdt is not None:
        spec.setdefault("linux", {})["intelRdt"] = _rdt(edits.intel_rdt)
    _add_groups(spec, edits.additional_gids)
    return spec


def _add_env(spec: OciSpec, env: Iterable[str]) -> None:
    variables: list[str] = spec.setdefault("process", {}).setdefault("env", [])
    # The library's index of what is there already is keyed by the whole text, so that only a variable
    # without a value is found again: PATH of the image stays in the list before ours.
    index = {text: position for position, text in enumerate(variables)}
    for text in env:
        name = text.partition("=")[0]
        if name in index:
            variables[index[name]] = text
        else:
            variables.append(text)
            index[name] = len(variables) - 1


def _add_node(spec: OciSpec, node: DeviceNode) -> None:
    linux = spec.setdefault("linux", {})
    user = spec.get("process", {}).get("user", {})
    devices: list[dict[str, Any]] = linux.setdefault("devices", [])
    devices[:] = _without_first(devices, "path", node.path)
    devices.append(_oci_device(node, user))
    if node.type in {"b", "c"}:
        rule = {"allow": True, "type": node.type, "major": node.major, "minor": node.minor}
        rule["access"] = node.permissions or "rwm"
        linux.setdefault("resources", {}).setdefault("devices", []).append(rule)


def _oci_device(node: DeviceNode, user: Mapping[str, Any]) -> dict[str, Any]:
    device: dict[str, Any] = {"path": node.path, "type": node.type, "major": node.major, "minor": node.minor}
    if node.file_mode is not None:
        device["fileMode"] = node.file_mode
    for name, given in (("uid", node.uid), ("gid", node.gid)):
        value = given if given is not None else user.get(name) or None
        if value is not None:
            device[name] = value
    return device


def _without_first(items: list[dict[str, Any]], key: str, value: str) -> list[dict[str, Any]]:
    for position, item in enumerate(items):
        if item.get(key) == value:
            return items[:position] + items[position + 1 :]
    return items


def _add_mounts(spec: OciSpec, mounts: Iterable[Mount], library: Library) -> None:
    merged: list[dict[str, Any]] = list(spec.get("mounts", []))
    for mount in mounts:
        merged = _without_first(merged, "destination", mount.container_path)
        merged.append(_mount(mount))
    if library.at_least(Library.V1_0_1):
        merged.sort(key=_parts)
    else:
        merged.sort(key=lambda mount: (_parts(mount), mount["destination"].encode()))
    spec["mounts"] = merged


def _parts(mount: Mapping[str, Any]) -> int:
    return clean(str(mount["destination"])).count("/")


def _mount(mount: Mount) -> dict[str, Any]:
    oci: dict[str, Any] = {"destination": mount.container_path, "source": mount.host_path}
    if mount.type:
        oci["type"] = mount.type
    if mount.options:
        oci["options"] = list(mount.options)
    return oci


def _hook(hook: Hook) -> dict[str, Any]:
    oci: dict[str, Any] = {"path": hook.path}
    if hook.args:
        oci["args"] = list(hook.args)
    if hook.env:
        oci["env"] = list(hook.env)
    if hook.timeout is not None:
        oci["timeout"] = hook.timeout
    return oci


def _rdt(rdt: IntelRdt) -> dict[str, Any]:
    values: dict[str, Any] = {
        "closID": rdt.clos_id,
        "l3CacheSchema": rdt.l3_cache_schema,
        "memBwSchema": rdt.mem_bw_schema,
        "schemata": list(rdt.schemata or ()),
        "enableCMT": rdt.enable_cmt,
        "enableMBM": rdt.enable_mbm,
        "enableMonitoring": rdt.enable_monitoring,
    }
    return {name: value for name, value in values.items() if value}


def _add_groups(spec: OciSpec, gids: Iterable[int]) -> None:
    wanted = [gid for gid in gids if gid]
    if not wanted:
        return
    groups: list[int] = spec.setdefault("process", {}).setdefault("user", {}).setdefault("additionalGids", [])
    for gid in wanted:
        if gid not in groups:
            groups.append(gid)
