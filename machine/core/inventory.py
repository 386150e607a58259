"""What a machine has: the document that setup writes and list, doctor and isolation read. Pure.

Every member of the document is always there, `null` where nothing is known, so that a reader needs no
defaults. `inventory.schema.json` beside this module describes the same shape; a test holds the two together.
Source: NVML API reference, PCI sysfs and DRM sysfs of the kernel.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import UnionType
from typing import Final, TypeVar, cast, get_args, get_origin, get_type_hints

from base.errors import MalformedError
from grants.core.model import format_instant, parse_instant

SCHEMA_VERSION: Final = 1
SETUP_HINT: Final = "run 'renet setup' to write it anew"

T = TypeVar("T")


class Platform(StrEnum):
    """`wsl` is Linux below Windows, where all cards are behind `/dev/dxg`."""

    NATIVE = "native"
    WSL = "wsl"


class Vendor(StrEnum):
    """Whose card it is."""

    NVIDIA = "nvidia"
    AMD = "amd"


class ComputeMode(StrEnum):
    """Who may open a context on the card (`nvmlComputeMode_t`)."""

    DEFAULT = "default"
    EXCLUSIVE_THREAD = "exclusive-thread"
    PROHIBITED = "prohibited"
    EXCLUSIVE_PROCESS = "exclusive-process"


class MigMode(StrEnum):
    """Whether the card is cut into slices."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    NOT_SUPPORTED = "not-supported"


class CcEnvironment(StrEnum):
    """Where confidential computing runs; a simulation protects nothing."""

    UNAVAILABLE = "unavailable"
    SIMULATION = "simulation"
    PRODUCTION = "production"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why something could not be read: `code` is stable, `message` says what to do."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """One compute instance of a card in MIG mode.

    `profile` is as NVML has it (`3g.20gb`), `gpu_instance` and `compute_instance` are its ids,
    `multiprocessors` counts its SMs.
    """

    uuid: str
    profile: str | None
    gpu_instance: int | None
    compute_instance: int | None
    memory_bytes: int | None
    multiprocessors: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """`pending` is the mode after the next reset of the card."""

    mode: MigMode
    pending: MigMode
    instances: tuple[MigInstance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU, or what is known of one that has a `fault`.

    `index` counts as NVML does, and for AMD by PCI address. `pci` is `0000:01:00.0`, `driver` the kernel
    driver's version (its name where it has none), `memory_bytes` the whole memory, `render_node` a path.
    """

    vendor: Vendor
    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    pci: str | None = None
    minor: int | None = None
    driver: str | None = None
    memory_bytes: int | None = None
    compute_mode: ComputeMode | None = None
    mig: Mig | None = None
    render_node: str | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidentialComputing:
    """The machine's state; it protects only in production, with the feature on and no developer tools.

    `ready` is whether the cards accept work; None when the driver does not tell.
    """

    environment: CcEnvironment
    feature: bool
    dev_tools: bool
    ready: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvidia:
    """The NVIDIA driver; there is none where no card and no driver is.

    `driver_version` is the loaded kernel module's, `cuda_version` the newest that it serves (`12.8`),
    `toolkit_version` that of nvidia-ctk; `confidential_computing` is None where it is not supported; `fault`
    says why NVML could not be asked.
    """

    driver_version: str | None
    cuda_version: str | None
    toolkit_version: str | None
    confidential_computing: ConfidentialComputing | None
    fault: Fault | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderNode:
    """A DRM render node with its kernel driver, permission bits and group."""

    path: str
    major: int
    minor: int
    mode: int
    gid: int
    driver: str | None
    pci: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A container program; `version` is None when it does not tell."""

    name: str
    path: str
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gvisor:
    """`nvproxy_drivers` are the NVIDIA drivers that this runsc serves; any other is refused by it."""

    version: str | None
    nvproxy_drivers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The machine. `detected_at` is when it was first found to be like this; `remarks` are for people."""

    detected_at: datetime
    platform: Platform
    gpus: tuple[Card, ...]
    nvidia: Nvidia | None
    kfd: bool
    render_nodes: tuple[RenderNode, ...]
    runtimes: tuple[Runtime, ...]
    gvisor: Gvisor | None
    remarks: tuple[str, ...]

    def same_machine(self, other: "Inventory") -> bool:
        """Whether both say the same, whenever they were made."""
        return self == replace(other, detected_at=self.detected_at)


def encode(inventory: Inventory) -> bytes:
    """The document: JSON, `schema_version` first."""
    members = plain(inventory)
    return (
        json.dumps({"schema_version": SCHEMA_VERSION, **members}, indent=1, ensure_ascii=False)
    ).encode() + b"\n"


def parse(raw: bytes) -> Inventory:
    """Read the document.

    Raises:
        MalformedError: it is not JSON, of another version, or not what the schema says.
    """
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise MalformedError(f"the inventory is not JSON: {exc}", hint=SETUP_HINT) from exc
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise MalformedError(f"the inventory's schema_version is {version!r}, not 1", hint=SETUP_HINT)
    error = _first_error(value)
    if error:
        raise MalformedError(f"the inventory is damaged: {error}", hint=SETUP_HINT)
    return read(Inventory, value)


def plain(value: object) -> dict[str, object]:
    """A dataclass of this module as JSON members."""
    if not is_dataclass(value) or isinstance(value, type):
        message = f"{value!r} is no record"
        raise TypeError(message)
    return {
        name: format_instant(item) if isinstance(item, datetime) else item
        for name, item in asdict(value).items()
    }


def read(kind: type[T], value: Mapping[str, object]) -> T:
    """The dataclass whose members `plain` has written, or whose shape a schema has checked.

    Raises:
        MalformedError: an instant or a closed value is none.
        KeyError: a member is missing.
    """
    try:
        return cast("T", _read(kind, value))
    except (ValueError, MalformedError) as exc:
        raise MalformedError(f"the inventory is damaged: {exc}", hint=SETUP_HINT) from exc


def _read(hint: object, value: object) -> object:
    origin = get_origin(hint)
    if origin is UnionType:
        return None if value is None else _read(get_args(hint)[0], value)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(get_args(hint)[0], item) for item in value)
    if hint is datetime:
        return parse_instant(str(value)).astimezone(UTC)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(str(value))
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, dict):
        hints = get_type_hints(hint)
        return hint(**{each.name: _read(hints[each.name], value[each.name]) for each in fields(hint)})
    return value


def _first_error(value: object) -> str | None:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - costs 50 ms, needed by readers of the file only
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    error = best_match(Draft202012Validator(_schema()).iter_errors(value))
    return None if error is None else f"{error.json_path}: {error.message[:200]}"


@cache
def _schema() -> Mapping[str, object]:
    text = files(__package__).joinpath("inventory.schema.json").read_text(encoding="utf-8")
    return cast("Mapping[str, object]", json.loads(text))
