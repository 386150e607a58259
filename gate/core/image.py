"""Builds, imports and commits: what makes images. Pure.

Source: facts page on gates, D6 to D9. No image makes a device appear; what is decided here is what the
daemon does on the way: which network it builds in, what it fetches by itself, whose cgroup it uses. The tar
of a build or import is streamed afterwards under a content type of the gate's own, as Go would take a form
body for query parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from base.errors import MalformedError
from gate.core.builder import builder_faults
from gate.core.denial import Broken, Rule, broken, refuse, show
from gate.core.docker_json import decode, encode
from gate.core.model import CONFIG, Config
from gate.core.policy import BuilderLookup, Context, Decision, Facts, Forward, Lookup, missing
from gate.core.router import Matched

_VERSIONS = frozenset({"", "1", "2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """`POST /build`, classic or BuildKit (`version=2`); judged by its query."""

    matched: Matched

    @classmethod
    def parse(cls, _raw: bytes, matched: Matched) -> "BuildRequest":
        """The body is the build context and is streamed."""
        return cls(matched=matched)

    def lookups(self, _context: Context, facts: Facts) -> tuple[Lookup, ...]:
        """For BuildKit: what it could reach."""
        return missing([BuilderLookup()], facts) if self._buildkit else ()

    @property
    def _buildkit(self) -> bool:
        return self.matched.one("version") == "2"

    def decide(self, context: Context, facts: Facts) -> Decision:
        """Forward the rebuilt query, or every reason why not."""
        found = (*self._faults(context), *(builder_faults(context, facts) if self._buildkit else ()))
        if found:
            return refuse(found, context.repo.name)
        query = tuple(pair for pair in self.matched.query if pair[0] != "cgroupparent")
        if context.repo.policy.cgroup_parent:
            query += (("cgroupparent", context.repo.policy.cgroup_parent),)
        return Forward(target=self.matched.rebuilt(query=query), content_type=self.matched.route.content_type)

    def _faults(self, context: Context) -> Iterator[Broken]:
        one, policy = self.matched.one, context.repo.policy
        remote, network, parent = one("remote"), one("networkmode"), one("cgroupparent")
        if remote not in {"", "client-session"}:
            yield broken(Rule.BUILD_REMOTE, f"building from {show(remote)} would make the daemon fetch it")
        if (network == "host" and not policy.network_host) or network.startswith("container:"):
            yield broken(Rule.BUILD_NETWORK, f"build network {show(network)} is not allowed")
        if parent and parent != policy.cgroup_parent:
            yield broken(Rule.BUILD_OPTION, f"build cgroup parent {show(parent)} is not allowed")
        if one("version") not in _VERSIONS:
            yield broken(Rule.BUILD_OPTION, f"builder version {show(one('version'))} is not known")
        if one("isolation") not in {"", "default"}:
            yield broken(Rule.BUILD_OPTION, f"build isolation {show(one('isolation'))} is not allowed")
        for key, value in self.matched.query:
            if key == "securityopt" and value and value not in policy.security_options:
                yield broken(Rule.SECURITY_OPTION, f"build security option {show(value)} is not allowed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCreateRequest:
    """`POST /images/create`: a pull, or an import of the body (`fromSrc=-`)."""

    matched: Matched

    @classmethod
    def parse(cls, _raw: bytes, matched: Matched) -> "ImageCreateRequest":
        """The body, if any, is a tar and is streamed."""
        return cls(matched=matched)

    def lookups(self, _context: Context, _facts: Facts) -> tuple[Lookup, ...]:
        """Nothing to ask."""
        return ()

    def decide(self, _context: Context, _facts: Facts) -> Decision:
        """Anything but a URL that the daemon would fetch."""
        source = self.matched.one("fromSrc")
        if source not in {"", "-"}:
            return refuse(
                [broken(Rule.IMAGE_URL, f"importing {show(source)} would make the daemon fetch it")]
            )
        return Forward(target=self.matched.target, content_type=self.matched.route.content_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """`POST /commit`, whose body is an image configuration, or absent for the container's own."""

    matched: Matched
    config: Config | None

    @classmethod
    def parse(cls, raw: bytes, matched: Matched) -> "CommitRequest":
        """The body, typed. An object that names no field of the configuration means the container's own too.

        Raises:
            MalformedError: it is not one JSON object of the right types.
        """
        value = decode(raw) if raw.strip() else None
        if value is None:
            return cls(matched=matched, config=None)
        if not isinstance(value, dict):
            raise MalformedError("the body must be a JSON object")
        dropped: list[str] = []
        config = CONFIG.read(value, dropped)
        named = len(value) > sum(name.startswith("Config.") for name in dropped)
        return cls(matched=matched, config=config if named else None)

    def lookups(self, _context: Context, _facts: Facts) -> tuple[Lookup, ...]:
        """Nothing to ask: every container of this daemon is the repo's own."""
        return ()

    def decide(self, _context: Context, _facts: Facts) -> Decision:
        """Always: an image configuration has no device fields, and no runtime here reads its environment."""
        if self.config is None:
            return Forward(target=self.matched.target)
        out = CONFIG.to_json(self.config)
        body = {"Hostname": "", **out} if isinstance(out, dict) else out
        return Forward(
            target=self.matched.target, content_type=self.matched.route.content_type, body=encode(body)
        )
