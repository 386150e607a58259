"""BuildKit inside the daemon: open only while the daemon guarantees that it reaches no hardware. Pure.

What goes over `/session` and `/grpc` is a protocol of its own that the gate does not read, so the guarantee
must be the daemon's. Source: facts page on gates, D6 and section 6, measured on 28.5.2: a build gets a CDI
device only if the daemon can resolve it, and then only with the entitlement `device` (which no daemon before
29 grants and which 29 grants unless configured not to) or by an annotation that no projection carries. So:
the daemon's only spec directory is the repo's projection, and it is older than 29 or configured by us.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gate.core.denial import Broken, Rule, broken, refuse, show
from gate.core.facts import BuilderFact
from gate.core.policy import BuilderLookup, Context, Decision, Facts, Forward, Lookup, missing
from gate.core.router import Matched

ENTITLED_FROM = 29
"""First major version whose builder has the entitlement `device` unless its configuration says otherwise."""

_MAJOR = re.compile(r"([0-9]{1,4})\.[0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderRequest:
    """`POST /session` or `POST /grpc`: a channel to BuildKit."""

    matched: Matched

    @classmethod
    def parse(cls, _raw: bytes, matched: Matched) -> "BuilderRequest":
        """These have no body before the daemon has switched protocols."""
        return cls(matched=matched)

    def lookups(self, _context: Context, facts: Facts) -> tuple[Lookup, ...]:
        """What the builder could reach."""
        return missing([BuilderLookup()], facts)

    def decide(self, context: Context, facts: Facts) -> Decision:
        """Forward while no device can be reached through it, or what must change first."""
        found = tuple(builder_faults(context, facts))
        return refuse(found, context.repo.name) if found else Forward(target=self.matched.target)


def builder_faults(context: Context, facts: Facts) -> Iterator[Broken]:
    """Why BuildKit in this repo's daemon could reach hardware; nothing when it cannot."""
    fact = facts.get(BuilderLookup())
    if not isinstance(fact, BuilderFact):
        yield broken(Rule.LOOKUP_FAILED, "the daemon could not be asked what its builder can reach")
        return
    major = _MAJOR.match(fact.version)
    if not context.repo.managed and (major is None or int(major.group(1)) >= ENTITLED_FROM):
        words = f"the daemon's version {show(fact.version) or 'is unknown and'} may give its builder devices"
        yield broken(Rule.BUILDER_ENTITLEMENT, words)
    for path in fact.spec_dirs or ():
        if not context.host.projection or posixpath.normpath(path) != context.host.projection:
            words = f"the daemon reads CDI specs in {show(path)}, so that builds could reach what they define"
            yield broken(Rule.BUILDER_DEVICES, words)
