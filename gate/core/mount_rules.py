"""Which mounts a repo may have: paths below its bind roots, plain volumes, its own gate's socket. Pure.

Source: issue "The main job, end to end", part 6; facts page on gates, sections 2.B and 2.C. A bind source is
judged twice, as written and as resolved. A managed daemon gets the resolved path, and follows no link on the
way to it, so that it mounts what was judged; other daemons get the path as written and follow links anew.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gate.core.denial import Broken, Rule, broken, show
from gate.core.devices import device_hint
from gate.core.facts import ContainerFact, MountPoint, PathFact, PathType, ViewFact, VolumeFact
from gate.core.hostpath import Reserved, inside, reserved_reason
from gate.core.model import HostConfig, edited
from gate.core.mounts import MountPlan
from gate.core.policy import ContainerLookup, Context, Facts, Lookup, PathLookup, ViewLookup, VolumeLookup
from gate.core.target import OBJECT_NAME

_SOCKET_NAMES = (
    "docker.sock",
    "dockerd.sock",
    "containerd.sock",
    "podman.sock",
    "crio.sock",
    "buildkitd.sock",
)
_HARMLESS_OPTIONS = frozenset({"size"})
_FROM_MODES = frozenset({"ro", "rw", "z", "Z", "nocopy"})


def plan_lookups(
    plan: MountPlan, volumes_from: Iterable[str], context: Context, facts: Facts
) -> list[Lookup]:
    """What must be known about a plan, and about the containers whose mounts it takes over."""
    wanted: list[Lookup] = _path_lookups((bind.source for bind in plan.binds), context)
    wanted += [VolumeLookup(volume.name) for volume in plan.volumes]
    for spelled in volumes_from:
        lookup = ContainerLookup(volumes_from_ref(spelled))
        wanted.append(lookup)
        if isinstance(fact := facts.get(lookup), ContainerFact):
            wanted += point_lookups(fact, context)
    return wanted


def point_lookups(fact: ContainerFact, context: Context) -> list[Lookup]:
    """What must be known about an existing container's mounts."""
    points = fact.mounts or ()
    binds = (point.source for point in points if point.type_ == "bind")
    wanted = _path_lookups(binds, context, existing=True)
    wanted += [VolumeLookup(point.name) for point in points if point.type_ == "volume" and point.name]
    return wanted


def _path_lookups(sources: Iterable[str], context: Context, *, existing: bool = False) -> list[Lookup]:
    """The paths that only their resolution can decide, and the roots to compare with."""
    paths = [
        path
        for path in sources
        if not is_gate_socket(path, context) and _lexical(path, context, existing=existing) is None
    ]
    if not paths:
        return []
    view = [ViewLookup()] if context.repo.managed else []
    return [*(PathLookup(path) for path in (*paths, *context.repo.policy.bind_roots)), *view]


def plan_faults(
    plan: MountPlan, volumes_from: Iterable[str], context: Context, facts: Facts
) -> Iterator[Broken]:
    """Everything that the mounts of a request may not be."""
    yield from plan.faults
    for bind in plan.binds:
        yield from bind_faults(bind.source, context, facts)
    for volume in plan.volumes:
        yield from volume_faults(volume.name, facts)
    for spelled in volumes_from:
        yield from _volumes_from_faults(spelled, context, facts)


def point_faults(fact: ContainerFact, context: Context, facts: Facts) -> Iterator[Broken]:
    """Everything that an existing container's mounts may not be."""
    for point in fact.mounts or ():
        if point.type_ == "bind":
            yield from bind_faults(point.source, context, facts, existing=True)
        elif point.type_ == "volume":
            yield from _volume_point_faults(point, facts)
        elif point.type_ not in {"tmpfs", "image"}:
            yield broken(Rule.MOUNT_TYPE, f"mount type {show(point.type_)} is not allowed")


def writable_binds(plan: MountPlan, volumes_from: Iterable[str], context: Context, facts: Facts) -> bool:
    """Whether any host directory can be written to, in which a container could make device nodes."""
    if any(bind.writable and not is_gate_socket(bind.source, context) for bind in plan.binds):
        return True
    for spelled in volumes_from:
        fact = facts.get(ContainerLookup(volumes_from_ref(spelled)))
        if isinstance(fact, ContainerFact) and any(
            point.type_ == "bind" and point.rw and not is_gate_socket(point.source, context)
            for point in fact.mounts or ()
        ):
            return True
    return False


def volumes_from_ref(spelled: str) -> str:
    """The container of a `CONTAINER[:MODE]` entry."""
    return spelled.partition(":")[0]


def pinned_volumes_from(spelled: str, facts: Facts) -> str:
    """The entry with the container's full id."""
    ref, colon, mode = spelled.partition(":")
    fact = facts.get(ContainerLookup(ref))
    return (fact.id if isinstance(fact, ContainerFact) else ref) + colon + mode


def is_gate_socket(path: str, context: Context) -> bool:
    """Whether a clean path is the gate's own socket for this repo; `/var/run` is `/run` everywhere."""
    return context.host.gate_socket in {path, path.removeprefix("/var") if inside(path, "/var/run") else path}


def resolved_host(host: HostConfig, context: Context, facts: Facts) -> HostConfig:
    """The request with each judged bind source resolved, for a daemon that follows no link on the way."""
    if not context.repo.managed:
        return host
    changes: dict[str, object] = {}
    if host.binds:
        changes["binds"] = tuple(_resolved_bind(each, context, facts) for each in host.binds)
    if host.mounts:
        changes["mounts"] = tuple(
            replace(each, source=_resolved(each.source, context, facts)) if each.type_ == "bind" else each
            for each in host.mounts
        )
    return edited(host, changes)


def _resolved_bind(spelled: str, context: Context, facts: Facts) -> str:
    source, colon, rest = spelled.partition(":")
    return _resolved(source, context, facts) + colon + rest if source.startswith("/") and colon else spelled


def _resolved(source: str, context: Context, facts: Facts) -> str:
    fact = facts.get(PathLookup(source))
    return fact.realpath if isinstance(fact, PathFact) and not is_gate_socket(source, context) else source


def bind_faults(source: str, context: Context, facts: Facts, *, existing: bool = False) -> Iterator[Broken]:
    """Why a clean host path may not be bound.

    Args:
        source: the path.
        context: under which it is asked.
        facts: what is known of it.
        existing: whether a container has it already, whose path cannot be changed any more.
    """
    if is_gate_socket(source, context):
        return
    fault = _lexical(source, context, existing=existing)
    if fault is not None:
        yield fault
        return
    fact = facts.get(PathLookup(source))
    roots = [facts.get(PathLookup(root)) for root in context.repo.policy.bind_roots]
    if not isinstance(fact, PathFact):
        yield broken(Rule.LOOKUP_FAILED, f"bind source {show(source)} could not be resolved")
        return
    leads = f"{show(source)} leads to {show(fact.realpath)}, which"
    reserved = reserved_reason(fact.realpath, context.host.protected)
    if reserved is not None:
        yield _reserved(reserved, f"{leads} {reserved.words}", fact.realpath, context)
    elif not any(isinstance(root, PathFact) and inside(fact.realpath, root.realpath) for root in roots):
        yield _outside(f"{leads} is outside the repo's bind roots", context)
    elif fact.type_ is PathType.SOCKET:
        yield _socket(source, context)
    elif fact.type_ in {PathType.DEVICE, PathType.OTHER}:
        detail = f"bind of {show(source)}, which is a {fact.type_.value} file, is not allowed"
        yield broken(Rule.BIND_DEVICE, detail, device_hint(fact.realpath))
    elif context.repo.managed:
        yield from _link_faults(source, fact.realpath, facts, existing=existing)


def _link_faults(source: str, realpath: str, facts: Facts, *, existing: bool) -> Iterator[Broken]:
    """Why a managed daemon would not mount, or might not mount, what was judged."""
    view = facts.get(ViewLookup())
    if existing and realpath != source:
        detail = f"bind source {show(source)} leads to {show(realpath)} now, by a symbolic link"
        yield broken(Rule.BIND_LINK, detail)
    elif realpath != source and (":" in realpath or not realpath.isprintable()):
        yield broken(Rule.MOUNT_MALFORMED, f"{show(source)} leads to {show(realpath)}, which has no spelling")
    if not isinstance(view, ViewFact):
        yield broken(Rule.LOOKUP_FAILED, "the daemon's mounts could not be read")
    elif not view.link_free(realpath):
        detail = f"the daemon would follow symbolic links on the way to {show(realpath)}"
        yield broken(Rule.BIND_UNCONFINED, detail)


def _lexical(source: str, context: Context, *, existing: bool) -> Broken | None:
    """What the text of a path already decides.

    A managed daemon's containers have resolved paths, which need not begin as a bind root is spelled.
    """
    reserved = reserved_reason(source, context.host.protected)
    if reserved is not None:
        return _reserved(
            reserved, f"bind of {show(source)} is not allowed: it {reserved.words}", source, context
        )
    if source.endswith(_SOCKET_NAMES):
        return _socket(source, context)
    resolved = existing and context.repo.managed
    if not resolved and not any(inside(source, root) for root in context.repo.policy.bind_roots):
        return _outside(f"bind of {show(source)} is outside the repo's bind roots", context)
    return None


def _reserved(reserved: Reserved, detail: str, path: str, context: Context) -> Broken:
    if reserved.rule is Rule.BIND_DEVICE:
        return broken(Rule.BIND_DEVICE, detail, device_hint(path))
    if path.endswith(".sock"):
        return _socket(path, context)
    return broken(reserved.rule, detail)


def _socket(source: str, context: Context) -> Broken:
    detail = f"bind of socket {show(source)} is not allowed"
    return broken(Rule.BIND_SOCKET, detail, f"bind the gate's own socket, {context.host.gate_socket}")


def _outside(detail: str, context: Context) -> Broken:
    roots, name = context.repo.policy.bind_roots, context.repo.name
    ask = f"ask the operator to add the path to policy.bind_roots in etc/rediacc/repos/{name}.yaml"
    way = f"use a path below {', '.join(roots)}, a named volume" if roots else "use a named volume"
    return broken(Rule.BIND_ROOT, detail, f"{way}, or {ask}")


def volume_faults(name: str, facts: Facts) -> Iterator[Broken]:
    """Why a volume may not be mounted: made by another driver, or with options that mount something else."""
    lookup = VolumeLookup(name)
    fact = facts.get(lookup)
    if isinstance(fact, VolumeFact):
        if fact.driver not in {"", "local"}:
            yield broken(Rule.VOLUME_DRIVER, f"volume {show(name)} has driver {show(fact.driver)}")
        for key in fact.options or ():
            if key not in _HARMLESS_OPTIONS:
                yield broken(Rule.VOLUME_OPTION, f"volume {show(name)} was made with option {show(key)}")
    elif lookup not in facts:
        yield broken(Rule.LOOKUP_FAILED, f"volume {show(name)} could not be inspected")


def _volume_point_faults(point: MountPoint, facts: Facts) -> Iterator[Broken]:
    if point.name:
        yield from volume_faults(point.name, facts)
    if point.driver not in {"", "local"}:
        yield broken(Rule.VOLUME_DRIVER, f"volume {show(point.name)} has driver {show(point.driver)}")


def _volumes_from_faults(spelled: str, context: Context, facts: Facts) -> Iterator[Broken]:
    ref, colon, mode = spelled.partition(":")
    if not ref or (colon and not _FROM_MODES.issuperset(mode.split(","))):
        yield broken(Rule.VOLUMES_FROM, f"volumes-from {show(spelled)} cannot be read")
        return
    lookup = ContainerLookup(ref)
    fact = facts.get(lookup)
    if not isinstance(fact, ContainerFact):
        known = lookup in facts or not OBJECT_NAME.match(ref)
        words = (
            f"no such container: {show(ref)}" if known else f"container {show(ref)} could not be inspected"
        )
        yield broken(Rule.OBJECT_UNKNOWN if known else Rule.LOOKUP_FAILED, words)
        return
    for fault in point_faults(fact, context, facts):
        yield broken(
            Rule.VOLUMES_FROM, f"volumes from {show(ref)} would bring this: {fault.detail}", fault.remedy
        )
