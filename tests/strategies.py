"""Hypothesis strategies that several packages' tests share: CDI names, specs and untrusted trees."""

import json
import string
from types import MappingProxyType

from hypothesis import strategies as st

from cdi.core.edits import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice
from cdi.core.library import Library
from cdi.core.model import Device, Spec
from cdi.core.names import QualifiedName
from cdi.core.rules import HOOK_NAMES, NODE_TYPES

_LETTERS = string.ascii_letters
_ALPHANUMERIC = _LETTERS + string.digits


def _words(first: str, between: str, *, shortest: int) -> st.SearchStrategy[str]:
    tail = st.builds(
        str.__add__,
        st.text(st.sampled_from(_ALPHANUMERIC + between), min_size=max(0, shortest - 2), max_size=12),
        st.sampled_from(_ALPHANUMERIC),
    )
    longer = st.builds(str.__add__, st.sampled_from(first), tail)
    return longer if shortest > 1 else st.one_of(st.sampled_from(first), longer)


vendors = _words(_LETTERS, "_-.", shortest=2)
"""Well-formed vendors; two letters at least, because shorter ones crash the library."""

classes = _words(_LETTERS, "_-.", shortest=2)
"""Well-formed classes."""

device_names = _words(_ALPHANUMERIC, "_-.:", shortest=1)
"""Well-formed device names."""

qualified_names = st.builds(QualifiedName, vendors, classes, device_names)
"""Well-formed qualified names."""

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_filled = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
_env = st.builds(lambda name, value: f"{name}={value}", _filled.filter(lambda name: name[0] != "="), _text)
_uint32 = st.integers(0, 2**32 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)
_annotations = st.dictionaries(_text, _text, max_size=3).map(MappingProxyType)


def _tuples(elements, **bounds):
    return st.lists(elements, **{"max_size": 2, **bounds}).map(tuple)


_nodes = st.builds(
    DeviceNode,
    path=_filled,
    host_path=_text,
    type=st.sampled_from(sorted(NODE_TYPES)),
    major=_int64,
    minor=_int64,
    file_mode=st.none() | _uint32,
    permissions=st.text(st.sampled_from("rwm"), max_size=3),
    uid=st.none() | _uint32,
    gid=st.none() | _uint32,
)
_mounts = st.builds(Mount, host_path=_filled, container_path=_filled, options=_tuples(_text), type=_text)
_hooks = st.builds(
    Hook,
    hook_name=st.sampled_from(sorted(HOOK_NAMES)),
    path=_filled,
    args=_tuples(_text),
    env=_tuples(_env),
    timeout=st.none() | _int64,
)
_clos_ids = _text.filter(lambda text: text not in {".", ".."} and not set(text) & {"/", "\n"})
_old_rdt = st.builds(
    IntelRdt,
    clos_id=_clos_ids,
    l3_cache_schema=_text,
    mem_bw_schema=_text,
    enable_cmt=st.booleans(),
    enable_mbm=st.booleans(),
)
_new_rdt = st.builds(
    IntelRdt,
    clos_id=_clos_ids | st.just("/"),
    l3_cache_schema=_text,
    mem_bw_schema=_text,
    schemata=st.none() | _tuples(_text),
    enable_monitoring=st.booleans(),
)
_net_devices = st.lists(
    st.builds(NetDevice, host_interface_name=_filled, name=_filled),
    max_size=2,
    unique_by=(lambda device: device.host_interface_name, lambda device: device.name),
).map(tuple)


def container_edits(library: Library = Library.V1_0_1) -> st.SearchStrategy[ContainerEdits]:
    """Edits, possibly empty, that this release of the library accepts."""
    fields = {
        "env": _tuples(_env),
        "device_nodes": _tuples(_nodes),
        "mounts": _tuples(_mounts),
        "hooks": _tuples(_hooks),
    }
    if library.at_least(Library.V0_7_2):
        fields["additional_gids"] = _tuples(_uint32)
        fields["intel_rdt"] = st.none() | (_new_rdt if library.at_least(Library.V1_1_0) else _old_rdt)
    if library.at_least(Library.V1_1_0):
        fields["net_devices"] = _net_devices
    return st.builds(ContainerEdits, **fields)


def specs(library: Library = Library.V1_0_1) -> st.SearchStrategy[Spec]:
    """Specs that this release of the library loads, declaring the newest version that it knows."""
    devices = st.lists(
        st.builds(
            Device,
            name=device_names,
            annotations=_annotations,
            container_edits=container_edits(library).filter(lambda edits: not edits.empty),
        ),
        min_size=1,
        max_size=2,
        unique_by=lambda device: device.name,
    ).map(tuple)
    return st.builds(
        Spec,
        cdi_version=st.just(library.spec_versions[-1]),
        kind=st.builds(lambda vendor, class_: f"{vendor}/{class_}", vendors, classes),
        annotations=_annotations,
        devices=devices,
        container_edits=container_edits(library),
    )


_FIELD_NAMES = [
    *("cdiVersion", "kind", "annotations", "devices", "name", "containerEdits", "env", "deviceNodes", "path"),
    *("hostPath", "type", "major", "fileMode", "mounts", "containerPath", "options", "hooks", "hookName"),
    *("timeout", "intelRdt", "closID", "additionalGids", "netDevices", "DEVICES", "Name"),
]

json_trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | _text
    | st.sampled_from(["0.5.0", "vv.com/dd", "A=1"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(_FIELD_NAMES) | _text, inner, max_size=4)
    ),
    max_leaves=20,
)
"""Trees that look a little like specs."""

untrusted_bytes = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text(st.sampled_from("abk:-?!&*#{}[],|>'\"%@`\n \t0.~<=/\\"), max_size=80).map(str.encode),
    json_trees.map(lambda tree: json.dumps(tree).encode()),
)
"""Bytes of every degree of resemblance to a spec."""
