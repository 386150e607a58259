"""Method and target against the closed table of endpoints. Pure.

Source: design section 5 step 2; facts page on gates, section 3.3. What is not in the table is 403 and never
404, and what is gets a canonical target: the daemon's router never sees a byte that the client chose freely.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from base.errors import MalformedError
from gate.core.denial import Denial, Rule, broken, malformed, refuse, show
from gate.core.target import MAX_AUDITED_API, OBJECT_NAME, Target, build_target, parse_query, parse_target


class Kind(StrEnum):
    """What the transport does with a request of a route.

    TRANSPARENT: forward the rebuilt head, relay both bodies. INSPECT: ask the gatekeeper first; with a body
    of kind TAR or ANY on the head alone (the gatekeeper gets no body, the client's is streamed afterwards).
    HIJACK, WEBSOCKET, H2C: as INSPECT, then tunnel after the daemon's own answer. DENY: never forwarded.
    """

    TRANSPARENT = "transparent"
    INSPECT = "inspect"
    HIJACK = "hijack"
    WEBSOCKET = "websocket"
    H2C = "h2c"
    DENY = "deny"


class Body(StrEnum):
    """What body a route takes; the body of one that takes none is dropped, as Go merges forms from it."""

    NONE = "none"
    JSON = "json"
    JSON_OPTIONAL = "json-optional"
    TAR = "tar"
    ANY = "any"


CONTENT_TYPES: Mapping[Body, bytes | None] = MappingProxyType(
    {
        Body.NONE: None,
        Body.JSON: b"application/json",
        Body.JSON_OPTIONAL: b"application/json",
        Body.TAR: b"application/x-tar",
        Body.ANY: b"application/octet-stream",
    }
)
"""The content type the daemon is told; never the client's, because a form body would override the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One endpoint.

    `pattern` is the path with `{id}`, `{image}` and so on; `query` the keys that may come once, `multi` those
    that may repeat, `refused` those that are refused when present and not empty.
    """

    name: str
    method: str
    pattern: str
    kind: Kind
    query: frozenset[str] = frozenset()
    multi: frozenset[str] = frozenset()
    refused: Mapping[str, Rule] = field(default_factory=lambda: MappingProxyType({}))
    body: Body = Body.NONE
    rule: Rule | None = None

    @property
    def content_type(self) -> bytes | None:
        """What the daemon is told the body is."""
        return CONTENT_TYPES[self.body]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """A request head that means exactly one thing.

    `target` is canonical; `dropped` names the query keys that no version of the endpoint knows.
    """

    route: Route
    api_version: str | None
    params: Mapping[str, str]
    query: tuple[tuple[str, str], ...]
    target: bytes
    dropped: tuple[str, ...] = ()

    def rebuilt(
        self, *, params: Mapping[str, str] | None = None, query: tuple[tuple[str, str], ...] | None = None
    ) -> bytes:
        """The canonical target with other parameters or another query."""
        path = _fill(self.route.pattern, self.params if params is None else params)
        return build_target(self.api_version, path, self.query if query is None else query)

    def one(self, key: str) -> str:
        """The value of a query key that comes at most once; empty when absent, as Go's form reader has it."""
        return next((value for name, value in self.query if name == key), "")


_ID = OBJECT_NAME
_NETWORK = re.compile(r"[ !-$&-.0-\[\]-~]{1,255}\Z")  # printable ASCII without / % and backslash
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*(?:/[A-Za-z0-9][A-Za-z0-9._:@+-]*)*\Z")
_MAX_IMAGE = 1024

_GRAMMARS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "id": _ID,
        "name": _ID,
        "checkpoint": _ID,
        "network": _NETWORK,
    }
)


class RouteTable:
    """The endpoints, indexed for matching.

    Path parameters stand at fixed places (second or fourth segment), image names between a fixed first
    segment and a fixed last one, so that a handful of dictionary look-ups decide; literal paths win.
    """

    def __init__(
        self,
        routes: tuple[Route, ...],
        denied_families: Mapping[str, Rule],
        denied_methods: Mapping[str, Rule],
    ) -> None:
        self.routes = routes
        self._families = denied_families
        self._methods = denied_methods
        self._plain: dict[tuple[str, str], Route] = {}
        self._image: dict[tuple[str, str, str], Route] = {}
        for route in routes:
            self._index(route)

    def _index(self, route: Route) -> None:
        parts = route.pattern[1:].split("/")
        if "{image}" in parts:
            key = (route.method, parts[0], parts[2] if len(parts) > 2 else "")
            if self._image.setdefault(key, route) is not route:
                raise ValueError(f"two routes for {key}")
            return
        shape = "/".join("*" if part.startswith("{") else part for part in parts)
        if self._plain.setdefault((route.method, shape), route) is not route:
            raise ValueError(f"two routes for {route.method} {shape}")

    def match(self, method: str, target: bytes) -> Matched | Denial:
        """The one route that a request head means, with its canonical target, or why not. Total."""
        try:
            return self._match(method, parse_target(target))
        except MalformedError as exc:
            return malformed(exc.message)

    def _match(self, method: str, parsed: Target) -> Matched | Denial:
        if parsed.api_version is not None and parsed.api_version > MAX_AUDITED_API:
            detail = f"client version {parsed.api_version} is too new. Maximum supported API version is"
            return malformed(f"{detail} {MAX_AUDITED_API}", Rule.API_VERSION)
        family = self._families.get(parsed.segments[0]) or self._methods.get(method)
        if family is not None:
            return _denied(method, parsed, family)
        route, params = self._find(method, parsed.segments)
        if route is None or route.rule is not None:
            return _denied(method, parsed, (route and route.rule) or Rule.UNKNOWN_ENDPOINT)
        _check_params(route, params)
        return _matched(route, parsed, params)

    def _find(self, method: str, segments: tuple[str, ...]) -> tuple[Route | None, Mapping[str, str]]:
        plain = self._plain
        if any("/" in segment for segment in segments):
            return self._find_image(method, segments)
        if route := plain.get((method, "/".join(segments))):
            return route, {}
        if len(segments) > 1:
            route = plain.get((method, "/".join((segments[0], "*", *segments[2:]))))
            if route is None and len(segments) == 4:
                route = plain.get((method, f"{segments[0]}/*/{segments[2]}/*"))
            if route is not None:
                names = [part[1:-1] for part in route.pattern.split("/") if part.startswith("{")]
                return route, dict(zip(names, segments[1::2], strict=False))
        return self._find_image(method, segments)

    def _find_image(self, method: str, segments: tuple[str, ...]) -> tuple[Route | None, Mapping[str, str]]:
        """Image names keep their slashes, encoded or not: `{image}` takes all between its neighbours."""
        first, last = segments[0], segments[-1]
        if len(segments) > 2 and (route := self._image.get((method, first, last))):
            return route, {"image": "/".join(segments[1:-1])}
        if len(segments) > 1 and (route := self._image.get((method, first, ""))):
            return route, {"image": "/".join(segments[1:])}
        return None, {}


def _matched(route: Route, parsed: Target, params: Mapping[str, str]) -> Matched | Denial:
    query, dropped = parse_query(parsed.query, single=route.query | set(route.refused), multi=route.multi)
    if route.refused:
        found = [
            broken(route.refused[key], f"query parameter {key}={show(value)}")
            for key, value in query
            if value and key in route.refused
        ]
        if found:
            return refuse(found)
        query = tuple(pair for pair in query if pair[0] not in route.refused)
    return Matched(
        route=route,
        api_version=parsed.api_version,
        params=MappingProxyType(dict(params)),
        query=query,
        target=build_target(parsed.api_version, _fill(route.pattern, params), query),
        dropped=dropped,
    )


def _check_params(route: Route, params: Mapping[str, str]) -> None:
    for name, value in params.items():
        if name == "image":
            if len(value) > _MAX_IMAGE or not _IMAGE.match(value):
                raise MalformedError(f"{show(value)} is not an image name")
        elif not _GRAMMARS[name].match(value) or value.strip(".") == "":
            raise MalformedError(f"{show(value)} is not a name or id that Docker accepts ({route.name})")


def _fill(pattern: str, params: Mapping[str, str]) -> str:
    path = pattern
    for name, value in params.items():
        path = path.replace("{" + name + "}", value)
    return path


_FAMILY_WORDS: Mapping[Rule, str] = MappingProxyType(
    {
        # The CLI's `docker inspect NAME` tries the next kind of object when a message says "not supported".
        Rule.PLUGINS: "plugins are not supported through the gate",
        Rule.SWARM: "swarm mode (services, nodes, tasks, secrets, configs) is not supported through the gate",
        Rule.CHECKPOINTS: "checkpoints are not supported through the gate",
        Rule.CLUSTER_VOLUME: "cluster volumes are not supported through the gate",
        Rule.DEBUG: "the daemon's debug endpoints are not supported through the gate",
        Rule.LEGACY_COPY: "POST /containers/ID/copy is not supported through the gate",
    }
)


def _denied(method: str, parsed: Target, rule: Rule) -> Denial:
    words = _FAMILY_WORDS.get(rule)
    detail = words or f"{show(method)} /{show('/'.join(parsed.segments))} is not an endpoint the gate knows"
    return refuse([broken(rule, detail)])
