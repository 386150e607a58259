"""Acts on existing containers: start, restart, unpause, attach, exec, copies into one. Pure.

Source: facts page on gates, sections 0 (item 4) and 2.D. CDI is resolved at every start, so grants are
checked at every start; what was made before the gate, or granted then and revoked since, is refused here.
An exec, an attach or a copy reaches all that its container reaches, so the same rules judge it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from gate.core.denial import Broken, Denial, Rule, broken, refuse, show
from gate.core.devices import device_faults, requested_devices
from gate.core.docker_json import decode, encode
from gate.core.facts import ContainerFact, ExecFact
from gate.core.kinds import BOOL, SIZE, STRING, STRINGS, pointer, wire
from gate.core.mount_rules import point_faults, point_lookups
from gate.core.namespaces import host_namespace_faults, joined_faults, namespace_lookups
from gate.core.policy import ContainerLookup, Context, Decision, ExecLookup, Facts, Forward, Lookup, missing
from gate.core.router import Body, Matched
from gate.core.sandbox import START_RULES
from gate.core.structs import struct


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """Start, restart, unpause, attach, copy into: judged by what the container's configuration says."""

    matched: Matched

    @classmethod
    def parse(cls, _raw: bytes, matched: Matched) -> "StartRequest":
        """These have no body but an archive, which is streamed; what else a client sends is dropped."""
        return cls(matched=matched)

    def lookups(self, context: Context, facts: Facts) -> tuple[Lookup, ...]:
        """The container, then what it mounts and joins."""
        return missing(act_lookups(self.matched.params["id"], context, facts), facts)

    def decide(self, context: Context, facts: Facts) -> Decision:
        """Forward by full id, or every reason why this container may not run now."""
        lookup = ContainerLookup(self.matched.params["id"])
        fact = facts.get(lookup)
        if not isinstance(fact, ContainerFact):
            return absent(lookup, facts)
        found = tuple(act_faults(fact, context, facts))
        if found:
            return refuse(found, context.repo.name)
        return Forward(
            target=by_full_id(self.matched, fact),
            content_type=self.matched.route.content_type,
            devices=requested_devices(fact.host_config),
            container=fact.id,
            archive=self.matched.route.body is Body.TAR,
        )


def act_lookups(ref: str, context: Context, facts: Facts) -> tuple[Lookup, ...]:
    """What `act_faults` must know of the container that `ref` names: itself, its mounts, what it joins."""
    lookup = ContainerLookup(ref)
    fact = facts.get(lookup)
    if not isinstance(fact, ContainerFact):
        return (lookup,)
    return (lookup, *point_lookups(fact, context), *namespace_lookups(fact.host_config, facts))


def absent(lookup: ContainerLookup, facts: Facts) -> Denial:
    """A container that nobody could be asked about, or that does not exist.

    The daemon is not asked in either case: between the gate's question and the daemon's answer another
    container, which nobody looked at, could be renamed to what did not exist. The words are the daemon's.
    """
    if lookup not in facts:
        return refuse([broken(Rule.LOOKUP_FAILED, f"container {show(lookup.ref)} could not be inspected")])
    return Denial(status=404, broken=(broken(Rule.OBJECT_UNKNOWN, f"No such container: {show(lookup.ref)}"),))


def by_full_id(matched: Matched, fact: ContainerFact) -> bytes:
    """The canonical target with the container named by its full id, whatever it is renamed to meanwhile."""
    return matched.rebuilt(params=MappingProxyType({**matched.params, "id": fact.id}))


def act_faults(fact: ContainerFact, context: Context, facts: Facts) -> Iterator[Broken]:
    """Every reason why nothing may run in this container now."""
    host, policy = fact.host_config, context.repo.policy
    yield from device_faults(host, context)
    yield from chain.from_iterable(rule(host, policy) for rule in START_RULES)
    yield from host_namespace_faults(host, policy, existing=True)
    yield from joined_faults(host, context, facts, existing=True)
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

    def lookups(self, context: Context, facts: Facts) -> tuple[Lookup, ...]:
        """The container, then what it mounts and joins."""
        return missing(act_lookups(self.matched.params["id"], context, facts), facts)

    def decide(self, context: Context, facts: Facts) -> Decision:
        """Not privileged, and not in a container that may not run now."""
        lookup = ContainerLookup(self.matched.params["id"])
        fact = facts.get(lookup)
        found: list[Broken] = []
        if self.body.privileged:
            found.append(broken(Rule.PRIVILEGED_EXEC, "exec --privileged is not allowed"))
        if isinstance(fact, ContainerFact):
            found += act_faults(fact, context, facts)
        elif not found:
            return absent(lookup, facts)
        if found or not isinstance(fact, ContainerFact):
            return refuse(found, context.repo.name)
        return Forward(
            target=by_full_id(self.matched, fact),
            content_type=self.matched.route.content_type,
            body=encode(EXEC_OPTIONS.to_json(self.body)),
            devices=requested_devices(fact.host_config),
            container=fact.id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecStartOptions:
    """`container.ExecStartOptions`."""

    detach: bool = wire("Detach", BOOL)
    tty: bool = wire("Tty", BOOL)
    console_size: tuple[int, int] | None = wire("ConsoleSize", pointer(SIZE))


EXEC_START_OPTIONS = struct(ExecStartOptions, "ExecStart")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecStartRequest:
    """`POST /exec/{id}/start`; no body means no options, as the daemon reads it."""

    matched: Matched
    body: ExecStartOptions

    @classmethod
    def parse(cls, raw: bytes, matched: Matched) -> "ExecStartRequest":
        """The body, typed.

        Raises:
            MalformedError: it is not one JSON object of the right types.
        """
        return cls(matched=matched, body=EXEC_START_OPTIONS.read(decode(raw) if raw else {}, []))

    def lookups(self, context: Context, facts: Facts) -> tuple[Lookup, ...]:
        """The exec, its container, then what that one mounts and joins."""
        lookup = ExecLookup(self.matched.params["id"])
        fact = facts.get(lookup)
        container = act_lookups(fact.container, context, facts) if isinstance(fact, ExecFact) else ()
        return missing([lookup, *container], facts)

    def decide(self, context: Context, facts: Facts) -> Decision:
        """Not in a container that may not run now, whatever it was when the exec was created.

        An exec that does not exist is the daemon's to report: its ids are random and never given twice.
        """
        lookup = ExecLookup(self.matched.params["id"])
        exec_ = facts.get(lookup)
        if lookup not in facts:
            return refuse([broken(Rule.LOOKUP_FAILED, f"exec {show(lookup.ref)} could not be inspected")])
        body = encode(EXEC_START_OPTIONS.to_json(self.body))
        content_type = self.matched.route.content_type
        if not isinstance(exec_, ExecFact):
            return Forward(target=self.matched.target, content_type=content_type, body=body)
        fact = facts.get(ContainerLookup(exec_.container))
        if not isinstance(fact, ContainerFact):
            return absent(ContainerLookup(exec_.container), facts)
        found = tuple(act_faults(fact, context, facts))
        if found:
            return refuse(found, context.repo.name)
        return Forward(
            target=self.matched.rebuilt(params=MappingProxyType({"id": exec_.id})),
            content_type=content_type,
            body=body,
            devices=requested_devices(fact.host_config),
            container=fact.id,
        )
