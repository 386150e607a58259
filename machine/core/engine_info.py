"""What a daemon says about itself in `GET /info`, as far as grants need it. Pure.

Source: Docker Engine API; `CDISpecDirs` exists from 25.0 (null or empty when CDI is off),
`DiscoveredDevices` from 28.2 (API 1.50).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from base.errors import MalformedError
from machine.core.daemon_config import engine_version

LISTS_DEVICES = (28, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """`devices` is None when the daemon is too old to list what it can resolve."""

    version: str
    cdi_spec_dirs: tuple[str, ...]
    devices: frozenset[str] | None
    warnings: tuple[str, ...]

    @classmethod
    def parse(cls, raw: bytes) -> "EngineInfo":
        """Read the answer's body; unknown members are ignored, as every client of this API does.

        Raises:
            MalformedError: it is not the JSON object that a Docker daemon answers with.
        """
        info = decode_object(raw)
        version = info.get("ServerVersion")
        if not isinstance(version, str):
            raise MalformedError("the answer to GET /info names no ServerVersion")
        devices = None
        if engine_version(version) >= LISTS_DEVICES:
            listed = info.get("DiscoveredDevices")
            devices = frozenset(
                str(item["ID"])
                for item in (listed if isinstance(listed, list) else [])
                if isinstance(item, dict) and item.get("Source") == "cdi" and "ID" in item
            )
        return cls(
            version=version,
            cdi_spec_dirs=strings(info.get("CDISpecDirs")),
            devices=devices,
            warnings=strings(info.get("Warnings")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """How much a daemon has; `volumes` and `size_bytes` are None where it does not say."""

    containers: int
    images: int
    volumes: int | None
    size_bytes: int | None

    @classmethod
    def of_usage(cls, raw: bytes) -> "Contents":
        """From the answer to `GET /system/df`.

        Raises:
            MalformedError: it is none.
        """
        usage = decode_object(raw)
        containers, images, volumes = (usage.get(key) for key in ("Containers", "Images", "Volumes"))
        layers = usage.get("LayersSize")
        if not isinstance(layers, int):
            raise MalformedError("the answer to GET /system/df has no LayersSize")
        cached = [each for each in _objects(usage.get("BuildCache")) if not each.get("Shared")]
        sizes = (
            layers,
            *(each.get("SizeRw") for each in _objects(containers)),
            *(
                each.get("Size")
                for volume in _objects(volumes)
                for each in _objects([volume.get("UsageData")])
            ),
            *(each.get("Size") for each in cached),
        )
        return cls(
            containers=len(_objects(containers)),
            images=len(_objects(images)),
            volumes=len(_objects(volumes)),
            size_bytes=sum(size for size in sizes if isinstance(size, int) and size > 0),
        )

    @classmethod
    def of_info(cls, raw: bytes) -> "Contents":
        """From the answer to `GET /info`, which costs the daemon nothing.

        Raises:
            MalformedError: it is none.
        """
        info = decode_object(raw)
        containers, images = info.get("Containers"), info.get("Images")
        if not isinstance(containers, int) or not isinstance(images, int):
            raise MalformedError("the answer to GET /info does not count containers and images")
        return cls(containers=containers, images=images, volumes=None, size_bytes=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A container that was started with a CDI device and has not ended."""

    id: str
    name: str
    devices: tuple[str, ...]


def holder(raw: bytes) -> Holder:
    """Read a container's inspect answer: which CDI devices it asked for.

    Raises:
        MalformedError: it is not an inspect answer.
    """
    inspected = decode_object(raw)
    host_config = inspected.get("HostConfig")
    identity, name = inspected.get("Id"), inspected.get("Name")
    if not isinstance(host_config, dict) or not isinstance(identity, str) or not isinstance(name, str):
        raise MalformedError("the answer to a container inspection lacks Id, Name or HostConfig")
    requests = host_config.get("DeviceRequests")
    devices = [
        device
        for request in (requests if isinstance(requests, list) else [])
        if isinstance(request, dict) and request.get("Driver") == "cdi"
        for device in strings(request.get("DeviceIDs"))
    ]
    return Holder(id=identity, name=name.lstrip("/"), devices=tuple(devices))


def decode_object(raw: bytes) -> Mapping[str, object]:
    """A JSON object.

    Raises:
        MalformedError: it is something else.
    """
    try:
        value: object = json.loads(raw)
    except ValueError as exc:
        raise MalformedError("the daemon's answer is not JSON") from exc
    if not isinstance(value, dict):
        raise MalformedError("the daemon's answer is not a JSON object")
    return value


def decode_ids(raw: bytes) -> tuple[str, ...]:
    """The container IDs in the answer to `GET /containers/json`.

    Raises:
        MalformedError: it is not a JSON array of objects with an Id.
    """
    try:
        value: object = json.loads(raw)
    except ValueError as exc:
        raise MalformedError("the daemon's answer is not JSON") from exc
    if not isinstance(value, list):
        raise MalformedError("the daemon's answer is not a JSON array")
    return tuple(item["Id"] for item in value if isinstance(item, dict) and isinstance(item.get("Id"), str))


def _objects(value: object) -> tuple[Mapping[str, object], ...]:
    """The objects of a JSON array; empty for anything else."""
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def strings(value: object) -> tuple[str, ...]:
    """The strings of a JSON array; empty for anything else."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
