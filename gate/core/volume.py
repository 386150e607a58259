"""`POST /volumes/create`: the local driver without options that mount something else. Pure.

Source: facts page on gates, C3: options of the local driver go straight to mount(2).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gate.core.denial import Broken, Rule, broken, refuse, show, show_options
from gate.core.docker_json import decode, encode
from gate.core.kinds import PRESENCE, STRING, STRING_MAP, wire
from gate.core.policy import Context, Decision, Facts, Forward, Lookup
from gate.core.router import Matched
from gate.core.structs import struct

_HARMLESS = frozenset({"size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeCreate:
    """`volume.CreateOptions`; a cluster specification is read in order to be refused."""

    name: str = wire("Name", STRING)
    driver: str = wire("Driver", STRING)
    driver_opts: Mapping[str, str] | None = wire("DriverOpts", STRING_MAP)
    labels: Mapping[str, str] | None = wire("Labels", STRING_MAP)
    cluster: bool = wire("ClusterVolumeSpec", PRESENCE)


VOLUME_CREATE = struct(VolumeCreate, "Volume")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeRequest:
    """A volume create that was read."""

    matched: Matched
    body: VolumeCreate

    @classmethod
    def parse(cls, raw: bytes, matched: Matched) -> "VolumeRequest":
        """The body, typed; no body is an empty object, as the daemon has it.

        Raises:
            MalformedError: it is not one JSON object of the right types.
        """
        return cls(matched=matched, body=VOLUME_CREATE.read(decode(raw or b"{}"), []))

    def lookups(self, _context: Context, _facts: Facts) -> tuple[Lookup, ...]:
        """Nothing to ask."""
        return ()

    def decide(self, context: Context, _facts: Facts) -> Decision:
        """A plain local volume, or every reason why not."""
        found = tuple(_faults(self.body))
        if found:
            return refuse(found, context.repo.name)
        return Forward(
            target=self.matched.target,
            content_type=self.matched.route.content_type,
            body=encode(VOLUME_CREATE.to_json(self.body)),
        )


def _faults(body: VolumeCreate) -> Iterator[Broken]:
    if body.driver not in {"", "local"}:
        yield broken(Rule.VOLUME_DRIVER, f"volume driver {show(body.driver)} is not allowed")
    options = {key: value for key, value in (body.driver_opts or {}).items() if key not in _HARMLESS}
    if options:
        yield broken(Rule.VOLUME_OPTION, f"volume options {show_options(options)} are not allowed")
    if body.cluster:
        yield broken(Rule.CLUSTER_VOLUME, "cluster volumes are not allowed")
