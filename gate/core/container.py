"""Acts on existing containers: start, restart, unpause, exec. Pure.

Source: facts page on gates, sections 0 (item 4) and 2.D. CDI is resolved at every start, so grants are
checked at every start; what was made before the gate, or granted then and revoked since, is refused here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from gate.core.denial import Broken, Denial, Rule, absent, broken, refuse, show
from gate.core.devices import device_faults, requested_devices
from gate.core.docker_json import decode, encode
from gate.core.facts import ContainerFact
from gate.core.kinds import BOOL, SIZE, STRING, STRINGS, pointer, wire
from gate.core.mount_rules import point_faults, point_lookups
from gate.core.namespaces import host_namespace_faults
from gate.core.policy import ContainerLookup, Context, Decision, Facts, Forward, Lookup, missing
from gate.core.router import Matched
from gate.core.sandbox import START_RULES
from gate.core.structs import struct


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """Start, restart or unpause: the container runs with what its configuration says, so that is judged."""

    matched: Matched

    @classmethod
    def parse(cls, _raw: bytes, matched: Matched) -> "StartRequest":
        """These have no body; what a client sends as one is dropped."""
        return cls(matched=matched)

    def lookups(self, context: Context, facts: Facts) -> tuple[Lookup, ...]:
        """The container, then its mounts."""
        lookup = ContainerLookup(self.matched.params["id"])
        wanted: list[Lookup] = [lookup]
        if isinstance(fact := facts.get(lookup), ContainerFact):
            wanted += point_lookups(fact, context)
        return missing(wanted, facts)

    def decide(self, context: Context, facts: Facts) -> Decision:
        """Forward by full id, or every reason why this container may not run now."""
        lookup = ContainerLookup(self.matched.params["id"])
        fact = facts.get(lookup)
        if not isinstance(fact, ContainerFact):
            return _no_fact(lookup, facts, (), context)
        found = tuple(_start_faults(fact, context, facts))
        if found:
            return refuse(found, context.repo.name)
        return Forward(
            target=by_full_id(self.matched, fact),
            devices=requested_devices(fact.host_config),
            container=fact.id,
        )


def _no_fact(lookup: ContainerLookup, facts: Facts, found: Iterable[Broken], context: Context) -> Denial:
    """What cannot be judged is never forwarded: not even a name that means nothing.

    By the time the daemon hears it, another container may have been renamed to it.
    """
    faults = list(found)
    if lookup not in facts:
        faults.append(broken(Rule.LOOKUP_FAILED, f"container {show(lookup.ref)} could not be inspected"))
    return refuse(faults, context.repo.name) if faults else absent(lookup.ref)


def by_full_id(matched: Matched, fact: ContainerFact) -> bytes:
    """The canonical target with the container named by its full id, whatever it is renamed to meanwhile."""
    return matched.rebuilt(params=MappingProxyType({**matched.params, "id": fact.id}))


def _start_faults(fact: ContainerFact, context: Context, facts: Facts) -> Iterator[Broken]:
    host, policy = fact.host_config, context.repo.policy
    yield from device_faults(host, context)
    yield from chain.from_iterable(rule(host, policy) for rule in START_RULES)
    yield from host_namespace_faults(host, policy, existing=True)
    yield from point_faults(fact, context, facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions:
    """`container.ExecOptions`; `privileged` is read in order to be refused."""

    user: str = wire("User", STRING)
    privileged: bool = wire("Privileged", BOOL)
    tty: bool = wire("Tty", BOOL)
    console_size: tuple[int, int] | None = wire("ConsoleSize", pointer(SIZE))
    attach_stdin: bool = wire("AttachStdin", BOOL)
    attach_stderr: bool = wire("AttachStderr", BOOL)
    attach_stdout: bool = wire("AttachStdout", BOOL)
    detach: bool = wire("Detach", BOOL)
    detach_keys: str = wire("DetachKeys", STRING)
    env: tuple[str, ...] | None = wire("Env", STRINGS)
    working_dir: str = wire("WorkingDir", STRING)
    cmd: tuple[str, ...] | None = wire("Cmd", STRINGS)


EXEC_OPTIONS = struct(ExecOptions, "Exec")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """`POST /containers/{id}/exec`."""

    matched: Matched
    body: ExecOptions

    @classmethod
    def parse(cls, raw: bytes, matched: Matched) -> "ExecRequest":
        """The body, typed.

        Raises:
            MalformedError: it is not one JSON object of the right types.
        """
        return cls(matched=matched, body=EXEC_OPTIONS.read(decode(raw), []))

    def lookups(self, _context: Context, facts: Facts) -> tuple[Lookup, ...]:
        """The container."""
        return missing([ContainerLookup(self.matched.params["id"])], facts)

    def decide(self, context: Context, facts: Facts) -> Decision:
        """Not privileged, and not in a container that holds a device without a live grant."""
        lookup = ContainerLookup(self.matched.params["id"])
        fact = facts.get(lookup)
        found: list[Broken] = []
        if self.body.privileged:
            found.append(broken(Rule.PRIVILEGED_EXEC, "exec --privileged is not allowed"))
        if not isinstance(fact, ContainerFact):
            return _no_fact(lookup, facts, found, context)
        found += device_faults(fact.host_config, context)
        if found:
            return refuse(found, context.repo.name)
        return Forward(
            target=by_full_id(self.matched, fact),
            content_type=self.matched.route.content_type,
            body=encode(EXEC_OPTIONS.to_json(self.body)),
            devices=requested_devices(fact.host_config),
            container=fact.id,
        )
