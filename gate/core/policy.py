"""What every decision has in common: what it is told, what it may ask first, and what it answers. Pure.

The way of an inspected request: `parse` its bytes, ask the daemon and the file system for `lookups` until
there are none left, `decide`. Facts go in as values, so that deciding needs no I/O and is total.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from cdi.core.names import QualifiedName
from gate.core.denial import Denial
from gate.core.facts import BuilderFact, ContainerFact, ExecFact, PathFact, ViewFact, VolumeFact
from gate.core.repo import RepoConfig
from gate.core.target import OBJECT_NAME


@dataclass(frozen=True, slots=True, order=True)
class ContainerLookup:
    """Inspect a container by name, id or id prefix; the answer is a `ContainerFact`, or None for 404."""

    ref: str


@dataclass(frozen=True, slots=True, order=True)
class VolumeLookup:
    """Inspect a volume; the answer is a `VolumeFact`, or None for 404."""

    name: str


@dataclass(frozen=True, slots=True, order=True)
class PathLookup:
    """Resolve a host path, following every symbolic link; the answer is always a `PathFact`."""

    path: str


@dataclass(frozen=True, slots=True, order=True)
class ExecLookup:
    """Inspect an exec by id; the answer is an `ExecFact`, or None for 404."""

    ref: str


@dataclass(frozen=True, slots=True, order=True)
class BuilderLookup:
    """Ask the daemon what its builder could reach; the answer is always a `BuilderFact`."""


@dataclass(frozen=True, slots=True, order=True)
class ViewLookup:
    """Ask the kernel which mounts the daemon sees; the answer is always a `ViewFact`."""


Lookup = ContainerLookup | VolumeLookup | PathLookup | ExecLookup | BuilderLookup | ViewLookup
Fact = ContainerFact | VolumeFact | PathFact | ExecFact | BuilderFact | ViewFact | None
Facts = Mapping[Lookup, Fact]
"""Answers so far. A lookup that is absent was not answered, and what depends on it is refused."""


class Unusable(StrEnum):
    """Why a device may not be used now."""

    MISSING = "missing"
    EXPIRED = "expired"
    DRIFTED = "drifted"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Granted:
    """The repo holds a live grant of exactly this name, and it still means what it meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotGranted:
    """It does not. `detail` says more where there is more to say."""

    reason: Unusable
    detail: str = ""


class GrantView(Protocol):
    """One repo's grants at one instant."""

    def status(self, device: QualifiedName) -> Granted | NotGranted:
        """Whether the repo may use the device now. Must not raise and not do I/O."""
        ...

    def names(self) -> tuple[QualifiedName, ...]:
        """Every device that `status` answers Granted for, to tell a user what could be asked instead."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPaths:
    """Host paths that decisions know: the gate's own socket for this repo, and what no bind may reach.

    `protected` are absolute clean paths beside the built-in ones: the gate's own directories, the raw
    daemon's socket and data directories, the machine's spec directories. `projection` is the repo's own CDI
    spec directory, the only one that its daemon should read.
    """

    gate_socket: str
    protected: tuple[str, ...] = ()
    projection: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a decision is made under."""

    repo: RepoConfig
    grants: GrantView
    host: HostPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """What the daemon gets in place of the client's request.

    Args:
        target: the whole canonical target.
        content_type: of the body; None when there is none.
        body: the new body; None where there is none, or where the client's own is streamed (TAR, ANY).
        response_warnings: for the `Warnings` of the daemon's answer.
        devices: the granted devices that the request is about, each once, in order.
        container: full id of the container it acts on, where one was looked up.
        archive: the client's streamed body is a tar whose headers are looked at on the way (`tar_scan`).
    """

    target: bytes
    content_type: bytes | None = None
    body: bytes | None = None
    response_warnings: tuple[str, ...] = ()
    devices: tuple[QualifiedName, ...] = ()
    container: str | None = None
    archive: bool = False


Decision = Forward | Denial


class Inspected(Protocol):
    """A request that was read, waiting for its facts."""

    def lookups(self, context: Context, facts: Facts, /) -> tuple[Lookup, ...]:
        """What must still be asked before `decide`; empty when all is known.

        Asked again with the answers, as one answer may raise the next question (a container's mounts); it
        ends after at most three rounds, because paths and volumes raise none.
        """
        ...

    def decide(self, context: Context, facts: Facts, /) -> Decision:
        """Forward or deny, with every broken rule. Total: never raises; what was not answered is refused."""
        ...


def missing(wanted: Iterable[Lookup], facts: Facts) -> tuple[Lookup, ...]:
    """The wanted lookups that have no answer yet, each once, in a stable order.

    A name that Docker's grammar does not allow is never asked about: it could lead the question elsewhere.
    """
    return tuple(dict.fromkeys(lookup for lookup in wanted if lookup not in facts and _askable(lookup)))


def _askable(lookup: Lookup) -> bool:
    match lookup:
        case ContainerLookup(ref=name) | VolumeLookup(name=name) | ExecLookup(ref=name):
            return OBJECT_NAME.match(name) is not None
        case PathLookup() | BuilderLookup() | ViewLookup():
            return True
