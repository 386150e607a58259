"""The fields of a CDI spec as the library's types have them, by release: wire names, Go types. Pure.

Source: CDI SPEC.md and what each release was measured to accept. Names are matched the way Go's JSON decoder
does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from cdi.core.library import Library

_FOLDS = {ord("\u017f"): "s", ord("\u212a"): "k"}
"""The two characters outside ASCII that Unicode's simple case folding maps to ASCII letters."""


def fold(name: str) -> str:
    """The form in which Go compares field names: ASCII case ignored, long s and the Kelvin sign included."""
    if name.isascii():
        return name.lower()
    return "".join(char.lower() if char.isascii() else _FOLDS.get(ord(char), char) for char in name)


@dataclass(frozen=True, slots=True)
class Text:
    """A Go `string`."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A Go `bool`."""


@dataclass(frozen=True, slots=True)
class Number:
    """A Go integer from `low` to `high`; `pointer` tells whether an absent one is told apart from 0."""

    go_type: str
    low: int
    high: int
    pointer: bool = False


@dataclass(frozen=True, slots=True)
class TextMap:
    """A Go `map[string]string`."""


@dataclass(frozen=True, slots=True)
class Struct:
    """A Go struct; `fields` by wire name, `folded` by compared form; `pointer` as for numbers."""

    go_type: str
    fields: "Mapping[str, GoType]"
    pointer: bool = False
    folded: "Mapping[str, tuple[str, GoType]]" = field(init=False)

    def __post_init__(self) -> None:
        folded = {fold(name): (name, go_type) for name, go_type in self.fields.items()}
        object.__setattr__(self, "folded", folded)


@dataclass(frozen=True, slots=True)
class Slice:
    """A Go slice."""

    element: "GoType"


GoType = Text | Flag | Number | TextMap | Struct | Slice

_TEXT = Text()
_FLAG = Flag()
_INT64 = Number("int64", -(2**63), 2**63 - 1)
_TIMEOUT = Number("int", -(2**63), 2**63 - 1, pointer=True)
_UINT32 = Number("uint32", 0, 2**32 - 1)
_ID = Number("uint32", 0, 2**32 - 1, pointer=True)
_FILE_MODE = Number("fs.FileMode", 0, 2**32 - 1, pointer=True)
_TEXTS = Slice(_TEXT)


@cache
def spec_type(library: Library) -> Struct:
    """The type that a file is decoded into by this release."""
    edits = _container_edits(library)
    device = Struct("Device", {"name": _TEXT, "annotations": TextMap(), "containerEdits": edits})
    return Struct(
        "Spec",
        {
            "cdiVersion": _TEXT,
            "kind": _TEXT,
            "annotations": TextMap(),
            "devices": Slice(device),
            "containerEdits": edits,
        },
    )


def _container_edits(library: Library) -> Struct:
    node: dict[str, GoType] = {
        "path": _TEXT,
        "hostPath": _TEXT,
        "type": _TEXT,
        "major": _INT64,
        "minor": _INT64,
        "fileMode": _FILE_MODE,
        "permissions": _TEXT,
        "uid": _ID,
        "gid": _ID,
    }
    hook: dict[str, GoType] = {
        "hookName": _TEXT,
        "path": _TEXT,
        "args": _TEXTS,
        "env": _TEXTS,
        "timeout": _TIMEOUT,
    }
    mount: dict[str, GoType] = {"hostPath": _TEXT, "containerPath": _TEXT, "options": _TEXTS, "type": _TEXT}
    fields: dict[str, GoType] = {
        "env": _TEXTS,
        "deviceNodes": Slice(Struct("DeviceNode", node, pointer=True)),
        "hooks": Slice(Struct("Hook", hook, pointer=True)),
        "mounts": Slice(Struct("Mount", mount, pointer=True)),
    }
    if library.at_least(Library.V0_7_2):
        fields["intelRdt"] = _intel_rdt(library)
        fields["additionalGids"] = Slice(_UINT32)
    if library.at_least(Library.V1_1_0):
        interface: dict[str, GoType] = {"hostInterfaceName": _TEXT, "name": _TEXT}
        fields["netDevices"] = Slice(Struct("LinuxNetDevice", interface, pointer=True))
    return Struct("ContainerEdits", fields)


def _intel_rdt(library: Library) -> Struct:
    rdt: dict[str, GoType] = {"closID": _TEXT, "l3CacheSchema": _TEXT, "memBwSchema": _TEXT}
    if library.at_least(Library.V1_1_0):
        rdt |= {"schemata": _TEXTS, "enableMonitoring": _FLAG}
    else:
        rdt |= {"enableCMT": _FLAG, "enableMBM": _FLAG}
    return Struct("IntelRdt", rdt, pointer=True)
