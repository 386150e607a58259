"""Every endpoint of Docker's API that the gate knows, as data.

Source: Docker Engine API 1.24 to 1.51 and the routers of engines 25 to 29; the query keys are all that any of
these versions reads. A legitimate key that is missing here breaks users; an unknown one is dropped and named.
"""

from types import MappingProxyType

from gate.core.denial import Rule
from gate.core.router import Body, Kind, Route

T, I, H, D = Kind.TRANSPARENT, Kind.INSPECT, Kind.HIJACK, Kind.DENY  # noqa: E741 - columns

DENIED_FAMILIES = MappingProxyType(
    {
        "plugins": Rule.PLUGINS,
        "swarm": Rule.SWARM,
        "services": Rule.SWARM,
        "nodes": Rule.SWARM,
        "tasks": Rule.SWARM,
        "secrets": Rule.SWARM,
        "configs": Rule.SWARM,
        "debug": Rule.DEBUG,
    }
)
"""First path segments that are refused whole, whatever follows and whatever the method."""

DENIED_METHODS = MappingProxyType({"OPTIONS": Rule.UNKNOWN_ENDPOINT})

_ATTACH = "detachKeys logs stream stdin stdout stderr"


def _route(
    name: str, method: str, pattern: str, kind: Kind, query: str = "", *, multi: str = "",
    body: Body = Body.NONE, rule: Rule | None = None, refused: dict[str, Rule] | None = None,
) -> Route:  # fmt: skip
    return Route(
        name=name, method=method, pattern=pattern, kind=kind, query=frozenset(query.split()),
        multi=frozenset(multi.split()), body=body, rule=rule, refused=MappingProxyType(refused or {}),
    )  # fmt: skip


# fmt: off
ROUTES: tuple[Route, ...] = (
    # System
    _route("system.ping", "GET", "/_ping", T),
    _route("system.ping_head", "HEAD", "/_ping", T),
    _route("system.info", "GET", "/info", T),
    _route("system.version", "GET", "/version", T),
    _route("system.events", "GET", "/events", T, "since until filters"),
    _route("system.df", "GET", "/system/df", T, "verbose", multi="type"),
    _route("system.auth", "POST", "/auth", T, body=Body.JSON),
    # Builds
    _route("build", "POST", "/build", I,
           "dockerfile remote q nocache cachefrom pull rm forcerm memory memswap cpushares cpusetcpus "
           "cpusetmems cpuperiod cpuquota buildargs shmsize squash labels networkmode platform target "
           "outputs version session buildid cgroupparent ulimits isolation",
           multi="t extrahosts securityopt", body=Body.TAR),
    _route("build.cancel", "POST", "/build/cancel", T, "id"),
    _route("build.prune", "POST", "/build/prune", T,
           "keep-storage reserved-space max-used-space min-free-space all filters"),
    _route("build.session", "POST", "/session", Kind.H2C),
    _route("build.grpc", "POST", "/grpc", Kind.H2C),
    _route("commit", "POST", "/commit", I, "container repo tag comment author pause", multi="changes",
           body=Body.JSON_OPTIONAL),
    # Containers
    _route("container.create", "POST", "/containers/create", I, "name platform", body=Body.JSON),
    _route("container.list", "GET", "/containers/json", T, "all limit size filters since before"),
    _route("container.prune", "POST", "/containers/prune", T, "filters"),
    _route("container.remove", "DELETE", "/containers/{id}", T, "v link force"),
    _route("container.archive_get", "GET", "/containers/{id}/archive", T, "path"),
    _route("container.archive_head", "HEAD", "/containers/{id}/archive", T, "path"),
    _route("container.archive_put", "PUT", "/containers/{id}/archive", I,
           "path noOverwriteDirNonDir copyUIDGID", body=Body.TAR),
    _route("container.attach", "POST", "/containers/{id}/attach", H, _ATTACH),
    _route("container.attach_ws", "GET", "/containers/{id}/attach/ws", Kind.WEBSOCKET, _ATTACH),
    _route("container.changes", "GET", "/containers/{id}/changes", T),
    _route("container.exec", "POST", "/containers/{id}/exec", I, body=Body.JSON),
    _route("container.export", "GET", "/containers/{id}/export", T),
    _route("container.inspect", "GET", "/containers/{id}/json", T, "size"),
    _route("container.kill", "POST", "/containers/{id}/kill", T, "signal"),
    _route("container.logs", "GET", "/containers/{id}/logs", T,
           "follow stdout stderr since until timestamps tail details"),
    _route("container.pause", "POST", "/containers/{id}/pause", T),
    _route("container.rename", "POST", "/containers/{id}/rename", T, "name"),
    _route("container.resize", "POST", "/containers/{id}/resize", T, "h w"),
    _route("container.restart", "POST", "/containers/{id}/restart", I, "signal t"),
    _route("container.start", "POST", "/containers/{id}/start", I, "detachKeys",
           refused={"checkpoint": Rule.CHECKPOINTS, "checkpoint-dir": Rule.CHECKPOINTS}),
    _route("container.stats", "GET", "/containers/{id}/stats", T, "stream one-shot"),
    _route("container.stop", "POST", "/containers/{id}/stop", T, "signal t"),
    _route("container.top", "GET", "/containers/{id}/top", T, "ps_args"),
    _route("container.unpause", "POST", "/containers/{id}/unpause", I),
    _route("container.update", "POST", "/containers/{id}/update", I, body=Body.JSON_OPTIONAL),
    _route("container.wait", "POST", "/containers/{id}/wait", T, "condition"),
    _route("container.copy", "POST", "/containers/{id}/copy", D, rule=Rule.LEGACY_COPY),
    _route("checkpoint.list", "GET", "/containers/{id}/checkpoints", D, rule=Rule.CHECKPOINTS),
    _route("checkpoint.create", "POST", "/containers/{id}/checkpoints", D, rule=Rule.CHECKPOINTS),
    _route("checkpoint.remove", "DELETE", "/containers/{id}/checkpoints/{checkpoint}", D,
           rule=Rule.CHECKPOINTS),
    # Exec
    _route("exec.inspect", "GET", "/exec/{id}/json", T),
    _route("exec.resize", "POST", "/exec/{id}/resize", T, "h w"),
    _route("exec.start", "POST", "/exec/{id}/start", H, body=Body.JSON_OPTIONAL),
    # Images
    _route("image.create", "POST", "/images/create", I, "fromImage fromSrc repo tag message platform",
           multi="changes", body=Body.ANY),
    _route("image.get_many", "GET", "/images/get", T, multi="names platform"),
    _route("image.list", "GET", "/images/json", T,
           "all filters filter shared-size digests manifests identity"),
    _route("image.load", "POST", "/images/load", T, "quiet", multi="platform", body=Body.TAR),
    _route("image.prune", "POST", "/images/prune", T, "filters"),
    _route("image.search", "GET", "/images/search", T, "term limit filters"),
    _route("image.remove", "DELETE", "/images/{image}", T, "force noprune", multi="platforms"),
    _route("image.attestations", "GET", "/images/{image}/attestations", T, "platform statement",
           multi="predicate-type type"),
    _route("image.get", "GET", "/images/{image}/get", T, multi="platform"),
    _route("image.history", "GET", "/images/{image}/history", T, "platform"),
    _route("image.inspect", "GET", "/images/{image}/json", T, "size manifests platform"),
    _route("image.push", "POST", "/images/{image}/push", T, "tag platform"),
    _route("image.tag", "POST", "/images/{image}/tag", T, "repo tag"),
    _route("distribution.inspect", "GET", "/distribution/{image}/json", T),
    # Networks
    _route("network.list", "GET", "/networks", T, "filters"),
    _route("network.create", "POST", "/networks/create", I, body=Body.JSON),
    _route("network.prune", "POST", "/networks/prune", T, "filters"),
    _route("network.remove", "DELETE", "/networks/{network}", T),
    _route("network.inspect", "GET", "/networks/{network}", T, "verbose scope"),
    _route("network.connect", "POST", "/networks/{network}/connect", I, body=Body.JSON),
    _route("network.disconnect", "POST", "/networks/{network}/disconnect", I, body=Body.JSON),
    # Volumes
    _route("volume.list", "GET", "/volumes", T, "filters"),
    _route("volume.create", "POST", "/volumes/create", I, body=Body.JSON_OPTIONAL),
    _route("volume.prune", "POST", "/volumes/prune", T, "filters"),
    _route("volume.remove", "DELETE", "/volumes/{name}", T, "force"),
    _route("volume.inspect", "GET", "/volumes/{name}", T),
    _route("volume.update", "PUT", "/volumes/{name}", D, rule=Rule.CLUSTER_VOLUME),
)
# fmt: on
