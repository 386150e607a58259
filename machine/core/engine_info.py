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


def strings(value: object) -> tuple[str, ...]:
    """The strings of a JSON array; empty for anything else."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
