"""Writing a spec so that every release of the library reads back the same value. Pure.

The library reads `.json` files as YAML too, so a JSON text must also be the YAML that means it: characters
that YAML 1.1 would fold, refuse or take for line breaks are escaped, and those beyond the Basic Multilingual
Plane are not, because YAML knows no surrogate pairs.
"""

import json
import re

from cdi.core.edits import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice
from cdi.core.model import Device, Spec

Json = str | int | bool | list["Json"] | dict[str, "Json"]

_UNSAFE = re.compile("[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]")


def encode_spec(spec: Spec) -> bytes:
    """The spec as canonical JSON: fixed order of fields, absent values left out, a line feed at the end."""
    text = json.dumps(_spec(spec), ensure_ascii=False, indent=1)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode() + b"\n"


def _spec(spec: Spec) -> Json:
    return _drop_absent(
        {
            "cdiVersion": spec.cdi_version,
            "kind": spec.kind,
            "annotations": dict(sorted(spec.annotations.items())),
            "devices": [_device(device) for device in spec.devices],
            "containerEdits": _edits(spec.container_edits),
        }
    )


def _device(device: Device) -> Json:
    return _drop_absent(
        {
            "name": device.name,
            "annotations": dict(sorted(device.annotations.items())),
            "containerEdits": _edits(device.container_edits),
        }
    )


def _edits(edits: ContainerEdits) -> Json:
    encoded: dict[str, Json | None] = {
        "env": list(edits.env),
        "deviceNodes": [_node(node) for node in edits.device_nodes],
        "netDevices": [_net_device(device) for device in edits.net_devices],
        "hooks": [_hook(hook) for hook in edits.hooks],
        "mounts": [_mount(mount) for mount in edits.mounts],
        "additionalGids": list(edits.additional_gids),
    }
    values = _drop_absent(encoded)
    if edits.intel_rdt is not None:
        values["intelRdt"] = _rdt(edits.intel_rdt)
    return values


def _node(node: DeviceNode) -> Json:
    values = _drop_absent(
        {
            "path": node.path,
            "hostPath": node.host_path,
            "type": node.type,
            "major": node.major or None,
            "minor": node.minor or None,
            "permissions": node.permissions,
        }
    )
    for name, number in (("fileMode", node.file_mode), ("uid", node.uid), ("gid", node.gid)):
        if number is not None:
            values[name] = number
    return values


def _mount(mount: Mount) -> Json:
    return _drop_absent(
        {
            "hostPath": mount.host_path,
            "containerPath": mount.container_path,
            "options": list(mount.options),
            "type": mount.type,
        }
    )


def _hook(hook: Hook) -> Json:
    values = _drop_absent(
        {"hookName": hook.hook_name, "path": hook.path, "args": list(hook.args), "env": list(hook.env)}
    )
    if hook.timeout is not None:
        values["timeout"] = hook.timeout
    return values


def _rdt(rdt: IntelRdt) -> Json:
    values = _drop_absent(
        {
            "closID": rdt.clos_id,
            "l3CacheSchema": rdt.l3_cache_schema,
            "memBwSchema": rdt.mem_bw_schema,
            "enableCMT": rdt.enable_cmt or None,
            "enableMBM": rdt.enable_mbm or None,
            "enableMonitoring": rdt.enable_monitoring or None,
        }
    )
    if rdt.schemata is not None:
        values["schemata"] = list(rdt.schemata)
    return values


def _net_device(device: NetDevice) -> Json:
    return {"hostInterfaceName": device.host_interface_name, "name": device.name}


def _drop_absent(values: "dict[str, Json | None]") -> "dict[str, Json]":
    """Without what Go's encoder leaves out as empty: no value, an empty string, list or mapping."""
    return {name: value for name, value in values.items() if value is not None and value not in ("", [], {})}
