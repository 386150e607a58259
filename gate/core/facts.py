"""What the daemon and the file system answered to the gate's own questions. Pure.

Source: Docker Engine API, answers of `GET /containers/{id}/json`, `GET /volumes/{name}`,
`GET /exec/{id}/json` and `GET /info` (`CDISpecDirs`: from 25.0, null or empty when CDI is off). Answers come
from the daemon, not from the client, and are read leniently in what they hold beside the fields needed here.
"""

# ruff: noqa: RUF009 - wire() makes a dataclass field

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from base.mountinfo import MountEntry, link_free
from gate.core.docker_json import Json
from gate.core.kinds import BOOL, STRING, STRING_MAP, STRINGS, pointer, slice_of, wire
from gate.core.model import HOST_CONFIG, HostConfig
from gate.core.structs import struct


class PathType(StrEnum):
    """What a path is after following every link."""

    MISSING = "missing"
    DIRECTORY = "directory"
    FILE = "file"
    SOCKET = "socket"
    DEVICE = "device"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFact:
    """A host path resolved: `realpath` is absolute and clean, with every symbolic link followed.

    Of a path that does not exist it is the resolved existing part with the rest appended.
    """

    realpath: str
    type_: PathType


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFact:
    """The mounts of the namespace in which the daemon, and all that it starts, resolves paths."""

    mounts: tuple[MountEntry, ...]

    def link_free(self, path: str) -> bool:
        """Whether this clean absolute path cannot be made to mean another one by a symbolic link."""
        return link_free(path, self.mounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPoint:
    """`container.MountPoint`: one mount of an existing container."""

    type_: str = wire("Type", STRING)
    name: str = wire("Name", STRING)
    source: str = wire("Source", STRING)
    destination: str = wire("Destination", STRING)
    driver: str = wire("Driver", STRING)
    mode: str = wire("Mode", STRING)
    rw: bool = wire("RW", BOOL)
    propagation: str = wire("Propagation", STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """`container.State`, the part that matters here."""

    running: bool = wire("Running", BOOL)
    paused: bool = wire("Paused", BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFact:
    """An existing container. `id` is the full one, which names it whatever it is renamed to."""

    id: str = wire("Id", STRING)
    name: str = wire("Name", STRING)
    image: str = wire("Image", STRING)
    host_config: HostConfig = wire("HostConfig", HOST_CONFIG)
    mounts: tuple[MountPoint, ...] | None = wire("Mounts", slice_of(struct(MountPoint, "Mounts")))
    state: ContainerState | None = wire("State", pointer(struct(ContainerState, "State")))

    @classmethod
    def parse(cls, answer: Mapping[str, object]) -> "ContainerFact":
        """The daemon's JSON answer.

        Raises:
            MalformedError: a field has the wrong type.
        """
        return _CONTAINER.read(cast("Json", answer), [])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecFact:
    """An exec that was created: its full id, and the full id of its container."""

    id: str = wire("ID", STRING)
    container: str = wire("ContainerID", STRING)

    @classmethod
    def parse(cls, answer: Mapping[str, object]) -> "ExecFact":
        """The daemon's JSON answer.

        Raises:
            MalformedError: a field has the wrong type.
        """
        return _EXEC.read(cast("Json", answer), [])


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderFact:
    """What decides whether BuildKit in the daemon could reach hardware: version and spec directories.

    Directories in which the daemon finds no spec may be left out: what is not there cannot be built with.
    """

    version: str = wire("ServerVersion", STRING)
    spec_dirs: tuple[str, ...] | None = wire("CDISpecDirs", STRINGS)

    @classmethod
    def parse(cls, answer: Mapping[str, object]) -> "BuilderFact":
        """The daemon's JSON answer to `GET /info`.

        Raises:
            MalformedError: a field has the wrong type.
        """
        return _BUILDER.read(cast("Json", answer), [])


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFact:
    """An existing volume."""

    name: str = wire("Name", STRING)
    driver: str = wire("Driver", STRING)
    mountpoint: str = wire("Mountpoint", STRING)
    scope: str = wire("Scope", STRING)
    options: Mapping[str, str] | None = wire("Options", STRING_MAP)

    @classmethod
    def parse(cls, answer: Mapping[str, object]) -> "VolumeFact":
        """The daemon's JSON answer.

        Raises:
            MalformedError: a field has the wrong type.
        """
        return _VOLUME.read(cast("Json", answer), [])


_CONTAINER = struct(ContainerFact, "Container")
_VOLUME = struct(VolumeFact, "Volume")
_EXEC = struct(ExecFact, "Exec")
_BUILDER = struct(BuilderFact, "Info")
