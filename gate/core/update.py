"""`POST /containers/{id}/update`: limits and restart policy, nothing else. Pure.

Source: moby copies CPU, memory, pids, block weight and the restart policy from an update and ignores the
rest; other engines ignore less, so that device fields are refused and everything else that it ignores is
left out. A restart policy makes the daemon start the container by itself, so whoever sets one is judged as if
he started it now.
"""

# ruff: noqa: RUF009 - wire() makes a dataclass field

from collections.abc import Iterator
from dataclasses import dataclass

from gate.core.container import absent, act_faults, act_lookups, by_full_id
from gate.core.denial import Broken, Rule, broken, refuse, show
from gate.core.devices import device_faults, throttle_faults
from gate.core.docker_json import decode, encode
from gate.core.facts import ContainerFact
from gate.core.kinds import wire
from gate.core.model import RESTART_POLICY, Resources, RestartPolicy
from gate.core.policy import ContainerLookup, Context, Decision, Facts, Forward, Lookup, missing
from gate.core.router import Matched
from gate.core.structs import struct

_COPIED = frozenset({
    "blkio_weight", "cpu_shares", "nano_cpus", "cpu_period", "cpu_quota", "cpu_realtime_period",
    "cpu_realtime_runtime", "cpuset_cpus", "cpuset_mems", "memory", "memory_swap", "memory_reservation",
    "kernel_memory", "pids_limit", "restart_policy",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBody(Resources):
    """`container.UpdateConfig`."""

    restart_policy: RestartPolicy = wire("RestartPolicy", RESTART_POLICY)


UPDATE_BODY = struct(UpdateBody, "Update")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRequest:
    """An update that was read."""

    matched: Matched
    body: UpdateBody
    dropped: tuple[str, ...]

    @classmethod
    def parse(cls, raw: bytes, matched: Matched) -> "UpdateRequest":
        """The body, typed; no body is an empty object, as the daemon has it.

        Raises:
            MalformedError: it is not one JSON object of the right types.
        """
        dropped: list[str] = []
        body = UPDATE_BODY.read(decode(raw or b"{}"), dropped)
        return cls(matched=matched, body=body, dropped=tuple(dropped))

    @property
    def _restarts(self) -> bool:
        return self.body.restart_policy.name not in {"", "no"}

    def lookups(self, context: Context, facts: Facts) -> tuple[Lookup, ...]:
        """With a restart policy: the container, then its mounts."""
        ref = self.matched.params["id"]
        return missing(act_lookups(ref, context, facts), facts) if self._restarts else ()

    def decide(self, context: Context, facts: Facts) -> Decision:
        """Forward what an update may change."""
        found = list(self._faults(context))
        target = self.matched.target
        if self._restarts:
            lookup = ContainerLookup(self.matched.params["id"])
            fact = facts.get(lookup)
            if isinstance(fact, ContainerFact):
                found += act_faults(fact, context, facts)
                target = by_full_id(self.matched, fact)
            elif not found:
                return absent(lookup, facts)
        if found:
            return refuse(found, context.repo.name)
        body = UpdateBody(**{name: getattr(self.body, name) for name in _COPIED})
        names = (*self.matched.dropped, *self.dropped)
        warnings = tuple(f"key {show(name)} is not known to the gate and was left out" for name in names)
        return Forward(
            target=target,
            content_type=self.matched.route.content_type,
            body=encode(UPDATE_BODY.to_json(body)),
            response_warnings=warnings,
        )

    def _faults(self, context: Context) -> Iterator[Broken]:
        yield from device_faults(self.body, context)
        yield from throttle_faults(self.body)
        if self.body.device_requests:
            yield broken(Rule.UPDATE_FIELD, "devices of an existing container cannot be changed")
        if self.body.cgroup_parent:
            yield broken(Rule.CGROUP_PARENT, f"cgroup parent {show(self.body.cgroup_parent)} is not allowed")
