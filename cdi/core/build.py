"""From decoded fields to frozen values, and from a place in the spec to the place in its file. Pure."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from cdi.core.edits import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice
from cdi.core.fields import fold
from cdi.core.go_json import Decoded, GoSlice
from cdi.core.model import NO_ANNOTATIONS, Device, Spec
from cdi.core.problems import ProblemCode, SpecProblem
from cdi.core.yaml_nodes import MappingNode, Node, SequenceNode

Tokens = tuple[str | int, ...]
"""A value's place: the library's spelling of field names, and list indices."""

_T = TypeVar("_T")
_Fields = Mapping[str, Decoded]


class NullElementError(Exception):
    """A `null` where the library dereferences a pointer without looking; `tokens` is its place."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.tokens = tokens


def build_spec(fields: _Fields) -> Spec:
    """The spec that decoded fields make.

    Raises:
        NullElementError: an element of a list of structs is null.
    """
    devices = tuple(
        _device(_fields(item), ("devices", index)) for index, item in enumerate(_items(fields.get("devices")))
    )
    return Spec(
        cdi_version=_text(fields, "cdiVersion"),
        kind=_text(fields, "kind"),
        annotations=_annotations(fields),
        devices=devices,
        container_edits=_edits(_fields(fields.get("containerEdits")), ("containerEdits",)),
    )


def _device(fields: _Fields, at: Tokens) -> Device:
    return Device(
        name=_text(fields, "name"),
        annotations=_annotations(fields),
        container_edits=_edits(_fields(fields.get("containerEdits")), (*at, "containerEdits")),
    )


def _edits(fields: _Fields, at: Tokens) -> ContainerEdits:
    if not fields:
        return ContainerEdits()
    rdt = fields.get("intelRdt")
    return ContainerEdits(
        env=_texts(fields, "env"),
        device_nodes=_structs(fields, "deviceNodes", _node, at),
        mounts=_structs(fields, "mounts", _mount, at),
        hooks=_structs(fields, "hooks", _hook, at),
        intel_rdt=None if rdt is None else _rdt(_fields(rdt)),
        additional_gids=tuple(gid for gid in _items(fields.get("additionalGids")) if isinstance(gid, int)),
        net_devices=_structs(fields, "netDevices", _net_device, at),
    )


def _node(fields: _Fields) -> DeviceNode:
    return DeviceNode(
        path=_text(fields, "path"),
        host_path=_text(fields, "hostPath"),
        type=_text(fields, "type"),
        major=_number(fields, "major") or 0,
        minor=_number(fields, "minor") or 0,
        file_mode=_number(fields, "fileMode"),
        permissions=_text(fields, "permissions"),
        uid=_number(fields, "uid"),
        gid=_number(fields, "gid"),
    )


def _mount(fields: _Fields) -> Mount:
    return Mount(
        host_path=_text(fields, "hostPath"),
        container_path=_text(fields, "containerPath"),
        options=_texts(fields, "options"),
        type=_text(fields, "type"),
    )


def _hook(fields: _Fields) -> Hook:
    return Hook(
        hook_name=_text(fields, "hookName"),
        path=_text(fields, "path"),
        args=_texts(fields, "args"),
        env=_texts(fields, "env"),
        timeout=_number(fields, "timeout"),
    )


def _rdt(fields: _Fields) -> IntelRdt:
    schemata = fields.get("schemata")
    return IntelRdt(
        clos_id=_text(fields, "closID"),
        l3_cache_schema=_text(fields, "l3CacheSchema"),
        mem_bw_schema=_text(fields, "memBwSchema"),
        enable_cmt=fields.get("enableCMT") is True,
        enable_mbm=fields.get("enableMBM") is True,
        schemata=None if schemata is None else _texts(fields, "schemata"),
        enable_monitoring=fields.get("enableMonitoring") is True,
    )


def _net_device(fields: _Fields) -> NetDevice:
    return NetDevice(host_interface_name=_text(fields, "hostInterfaceName"), name=_text(fields, "name"))


def _structs(fields: _Fields, name: str, make: Callable[[_Fields], _T], at: Tokens) -> tuple[_T, ...]:
    made: list[_T] = []
    for index, item in enumerate(_items(fields.get(name))):
        if item is None:
            raise NullElementError((*at, name, index))
        made.append(make(_fields(item)))
    return tuple(made)


def _fields(value: Decoded) -> _Fields:
    return value if isinstance(value, dict) else {}


def _items(value: Decoded) -> list[Decoded]:
    return value.items if isinstance(value, GoSlice) else []


def _text(fields: _Fields, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _texts(fields: _Fields, name: str) -> tuple[str, ...]:
    return tuple(item for item in _items(fields.get(name)) if isinstance(item, str))


def _number(fields: _Fields, name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) else None


def _annotations(fields: _Fields) -> Mapping[str, str]:
    values = _fields(fields.get("annotations"))
    if not values:
        return NO_ANNOTATIONS
    return MappingProxyType({key: value for key, value in values.items() if isinstance(value, str)})


def problem_at(root: Node, tokens: Tokens, message: str, code: ProblemCode) -> SpecProblem:
    """The problem with the place in the file where `tokens` lead, or as far as they lead there."""
    node, written = root, ""
    for token in tokens:
        step = _step(node, token)
        if step is None:
            break
        key, node = step
        written += "/" + str(key).replace("~", "~0").replace("/", "~1")
    return SpecProblem(
        message=message, code=code, line=node.line + 1, column=node.column + 1, pointer=written
    )


def _step(node: Node, token: str | int) -> tuple[str | int, Node] | None:
    if isinstance(node, SequenceNode) and isinstance(token, int) and token < len(node.items):
        return token, node.items[token]
    if not isinstance(node, MappingNode) or isinstance(token, int):
        return None
    spellings = sorted(key for key in node.entries if fold(key) == fold(token))
    return (spellings[-1], node.entries[spellings[-1]]) if spellings else None
