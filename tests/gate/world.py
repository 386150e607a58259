"""A world to decide in: grants, daemon answers and paths as plain values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from base.errors import MalformedError
from base.mountinfo import MountEntry
from cdi.core.names import QualifiedName
from gate.core.denial import Denial
from gate.core.facts import BuilderFact, ContainerFact, ExecFact, PathFact, PathType, ViewFact, VolumeFact
from gate.core.inspected import parse
from gate.core.policy import (
    BuilderLookup,
    ContainerLookup,
    Context,
    Decision,
    ExecLookup,
    Fact,
    Forward,
    Granted,
    HostPaths,
    Lookup,
    NotGranted,
    PathLookup,
    Unusable,
    ViewLookup,
    VolumeLookup,
)
from gate.core.repo import RepoConfig, RepoName, RepoPolicy
from gate.core.routes import Matched, match

GATE_SOCKET = "/run/rediacc/guid-a/docker.sock"
PROJECTION = "/run/rediacc/guid-a/cdi"
FULL_ID = "f" * 64
GPU0 = QualifiedName.parse("nvidia.com/gpu=0")
CREATE = b"/v1.51/containers/create"


@dataclass(frozen=True)
class FakeGrants:
    """Grants by name: granted, or why not."""

    granted: tuple[QualifiedName, ...] = (GPU0,)
    refused: Mapping[QualifiedName, Unusable] = field(default_factory=dict)

    def status(self, device: QualifiedName) -> Granted | NotGranted:
        if device in self.granted:
            return Granted()
        return NotGranted(reason=self.refused.get(device, Unusable.MISSING))

    def names(self) -> tuple[QualifiedName, ...]:
        return self.granted


def repo(policy: RepoPolicy | None = None) -> RepoConfig:
    return RepoConfig(name=RepoName("gpu-a"), guid="guid-a", policy=policy or RepoPolicy())


def view(*points: str) -> ViewFact:
    """What a daemon sees that follows no links below these directories."""
    guards = (
        MountEntry(id=number, parent=1, point=point, options=frozenset({"rw", "nosymfollow"}))
        for number, point in enumerate(points, 2)
    )
    return ViewFact(mounts=(MountEntry(id=1, parent=0, point="/", options=frozenset({"rw"})), *guards))


@dataclass(frozen=True)
class World:
    """Answers from tables; absent containers and volumes do not exist, absent paths are directories."""

    context: Context = field(
        default_factory=lambda: Context(
            repo=repo(),
            grants=FakeGrants(),
            host=HostPaths(gate_socket=GATE_SOCKET, protected=("/srv/machine",), projection=PROJECTION),
        )
    )
    containers: Mapping[str, ContainerFact] = field(default_factory=dict)
    volumes: Mapping[str, VolumeFact] = field(default_factory=dict)
    paths: Mapping[str, PathFact] = field(default_factory=dict)
    execs: Mapping[str, ExecFact] = field(default_factory=dict)
    builder: BuilderFact = field(
        default_factory=lambda: BuilderFact(version="28.5.2", spec_dirs=(PROJECTION,))
    )
    view: ViewFact = field(default_factory=lambda: view("/srv", "/home"))
    silent: bool = False

    def answer(self, lookup: Lookup) -> Fact:
        match lookup:
            case ContainerLookup(ref):
                return self.containers.get(ref)
            case VolumeLookup(name):
                return self.volumes.get(name)
            case ExecLookup(ref):
                return self.execs.get(ref)
            case BuilderLookup():
                return self.builder
            case ViewLookup():
                return self.view
            case PathLookup(path):
                return self.paths.get(path, PathFact(realpath=path, type_=PathType.DIRECTORY))

    def decide(self, method: str, target: bytes, raw: bytes = b"") -> Decision:
        """The whole way of an inspected request, as the gatekeeper goes it."""
        matched = match(method, target)
        assert isinstance(matched, Matched), matched.message()
        request = parse(raw, matched)
        facts: dict[Lookup, Fact] = {}
        for _ in range(8):
            wanted = request.lookups(self.context, facts)
            if self.silent or not wanted:
                break
            facts |= {lookup: self.answer(lookup) for lookup in wanted}
        else:
            raise AssertionError("lookups did not come to an end")
        return request.decide(self.context, facts)

    def create(self, host: Mapping[str, object] | None = None, **top: object) -> Decision:
        body = {"Image": "bb:1", **top} | ({} if host is None else {"HostConfig": host})
        return self.decide("POST", CREATE, json.dumps(body).encode())

    def codes(self, host: Mapping[str, object] | None = None, **top: object) -> tuple[str, ...]:
        """The codes of a create; empty when it is forwarded, `malformed` when it cannot be read."""
        try:
            decision = self.create(host, **top)
        except MalformedError:
            return ("malformed",)
        return decision.codes() if isinstance(decision, Denial) else ()

    def sent(self, host: Mapping[str, object] | None = None, **top: object) -> dict[str, object]:
        """The body that the daemon gets for a create."""
        decision = self.create(host, **top)
        assert isinstance(decision, Forward), decision.message()
        return body_of(decision)


def host_of(body: Mapping[str, object]) -> dict[str, object]:
    return cast("dict[str, object]", body["HostConfig"])


def body_of(decision: Decision) -> dict[str, object]:
    assert isinstance(decision, Forward)
    assert decision.body is not None
    return cast("dict[str, object]", json.loads(decision.body))


def allowing(world: World | None = None, **policy: object) -> World:
    """A world whose repo's policy says this."""
    base = world or World()
    changed = replace(base.context.repo, policy=RepoPolicy(**policy))  # type: ignore[arg-type]
    return replace(base, context=replace(base.context, repo=changed))


def container(
    host: Mapping[str, object] | None = None, *mounts: Mapping[str, object], id_: str = FULL_ID
) -> ContainerFact:
    """An existing container as the daemon describes it."""
    return ContainerFact.parse({"Id": id_, "Name": "/c", "HostConfig": host or {}, "Mounts": list(mounts)})


def volume(name: str = "v", driver: str = "local", options: Mapping[str, str] | None = None) -> VolumeFact:
    return VolumeFact.parse({"Name": name, "Driver": driver, "Options": options})


def cdi(*names: str, **extra: object) -> dict[str, object]:
    """A CDI entry of DeviceRequests."""
    return {"Driver": "cdi", "DeviceIDs": list(names), **extra}


def granting(*names: QualifiedName, grants: FakeGrants | None = None) -> World:
    """A world in which the repo holds exactly these devices."""
    base = World()
    return replace(base, context=replace(base.context, grants=grants or FakeGrants(granted=names)))
