"""`POST /containers/create`: the one place where hardware enters. Pure.

Source: design section 5; facts page on gates, sections 2 and 3. The body is read into types, held to every
rule at once, and written anew from the types.
"""

# ruff: noqa: RUF009 - wire() makes a dataclass field

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import cast

from base.errors import MalformedError
from cdi.core.names import QualifiedName
from gate.core.capability import canonical_capability
from gate.core.denial import Broken, Rule, broken, refuse, show
from gate.core.devices import canonical_requests, device_faults, requested_devices, throttle_faults
from gate.core.docker_json import Json, decode, encode
from gate.core.environment import owned_environment
from gate.core.kinds import wire
from gate.core.model import CONFIG, HOST_CONFIG, Config, HostConfig, edited
from gate.core.mount_rules import (
    pinned_volumes_from,
    plan_faults,
    plan_lookups,
    resolved_host,
    writable_binds,
)
from gate.core.mounts import MountPlan, read_mounts
from gate.core.namespaces import host_namespace_faults, joined_faults, namespace_lookups, pinned
from gate.core.netmodel import NETWORKING, Networking
from gate.core.netrules import endpoint_faults
from gate.core.policy import Context, Decision, Facts, Forward, Lookup, missing
from gate.core.router import Matched
from gate.core.sandbox import CREATE_RULES, canonical_paths, runtime_faults
from gate.core.structs import fold, struct, wire_names

_WARNING = "key {} is not known to the gate and was left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBody(Config):
    """`container.CreateRequest`."""

    host_config: HostConfig = wire("HostConfig", HOST_CONFIG)
    networking: Networking = wire("NetworkingConfig", NETWORKING)


CREATE_BODY = struct(CreateBody, "Create")

_HARMLESS_AT_TOP = frozenset({
    "Memory", "MemorySwap", "MemoryReservation", "KernelMemory", "CpuShares", "CpusetCpus", "CpusetMems",
    "CpuPeriod", "CpuQuota", "NanoCpus", "PidsLimit", "ConsoleSize", "ContainerIDFile", "AutoRemove",
    "RestartPolicy", "Runtime",
})  # fmt: skip
"""HostConfig keys that old clients put beside HostConfig, whose loss opens nothing: left out, and named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """A create that was read.

    `stray` are HostConfig's fields found at the top level, where engines up to 26 would read them; `dropped`
    names the keys that are left out.
    """

    matched: Matched
    body: CreateBody
    stray: HostConfig | None
    dropped: tuple[str, ...]
    plan: MountPlan
    devices: tuple[QualifiedName, ...]

    @classmethod
    def parse(cls, raw: bytes, matched: Matched) -> "CreateRequest":
        """The body as Go's decoder would read it.

        Raises:
            MalformedError: it is not one JSON object of the right types.
        """
        value = decode(raw)
        if not isinstance(value, dict):
            raise MalformedError("the body must be a JSON object")
        dropped: list[str] = []
        body = CREATE_BODY.read(value, dropped)
        stray, unknown = _stray(value, dropped) if dropped else (None, [])
        return cls(
            matched=matched,
            body=body,
            stray=stray,
            dropped=(*matched.dropped, *unknown),
            plan=read_mounts(body.host_config, body),
            devices=requested_devices(body.host_config),
        )

    def lookups(self, context: Context, facts: Facts) -> tuple[Lookup, ...]:
        """Volumes, bind sources, and containers whose namespaces or volumes are shared."""
        host = self.body.host_config
        wanted: list[Lookup] = list(namespace_lookups(host, facts))
        wanted += plan_lookups(self.plan, host.volumes_from or (), context, facts)
        return missing(wanted, facts)

    def decide(self, context: Context, facts: Facts) -> Decision:
        """Forward the rebuilt body, or deny with every broken rule."""
        found = tuple(self._faults(context, facts))
        return refuse(found, context.repo.name) if found else self._forward(context, facts)

    def _faults(self, context: Context, facts: Facts) -> Iterator[Broken]:
        host, policy = self.body.host_config, context.repo.policy
        if self.stray is not None:
            yield from _stray_faults(self.stray, context)
        yield from device_faults(host, context)
        yield from throttle_faults(host)
        yield from chain.from_iterable(rule(host, policy) for rule in CREATE_RULES)
        yield from host_namespace_faults(host, policy)
        yield from joined_faults(host, context, facts)
        yield from endpoint_faults(self.body.networking.endpoints_config or {}, policy)
        yield from plan_faults(self.plan, host.volumes_from or (), context, facts)

    def _forward(self, context: Context, facts: Facts) -> Forward:
        host = self._edited_host(context, facts)
        env, warnings = owned_environment(self.body.env, devices=bool(self.devices), runtime=host.runtime)
        out = cast("dict[str, Json]", CONFIG.to_json(self.body))
        if env is not None:
            out["Env"] = list(env)
        out.setdefault("Image", "")
        out["HostConfig"] = HOST_CONFIG.to_json(host)
        if self.body.networking.endpoints_config is not None:
            out["NetworkingConfig"] = NETWORKING.to_json(self.body.networking)
        return Forward(
            target=self.matched.target,
            content_type=self.matched.route.content_type,
            body=encode(out),
            response_warnings=(*(_WARNING.format(show(key)) for key in self.dropped), *warnings),
            devices=self.devices,
        )

    def _edited_host(self, context: Context, facts: Facts) -> HostConfig:
        """The host configuration as decided: canonical spellings, full ids, the gate's own additions."""
        host = resolved_host(pinned(self.plan.host_config, facts), context, facts)
        policy = context.repo.policy
        sources = host.volumes_from or ()
        changes: dict[str, object] = {
            "device_requests": canonical_requests(self.devices),
            "cgroup_parent": policy.cgroup_parent or "",
            "container_id_file": "",
        }
        if sources:
            changes["volumes_from"] = tuple(pinned_volumes_from(one, facts) for one in sources)
        if host.masked_paths is not None or host.readonly_paths is not None:
            changes["masked_paths"], changes["readonly_paths"] = canonical_paths(host)
        if "MKNOD" not in policy.capabilities and writable_binds(self.plan, sources, context, facts):
            changes["cap_add"], changes["cap_drop"] = without_mknod(host.cap_add, host.cap_drop)
        return edited(host, changes)


def without_mknod(
    cap_add: tuple[str, ...] | None, cap_drop: tuple[str, ...] | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Capabilities without MKNOD, as a device node in a writable bind outlives the container's device rules.

    An addition wins over a drop, so it is taken out there too; dropping `ALL` drops it already.
    """
    added = (
        None if cap_add is None else tuple(name for name in cap_add if canonical_capability(name) != "MKNOD")
    )
    dropped = cap_drop or ()
    if not any(canonical_capability(name) in {"MKNOD", "ALL"} for name in dropped):
        dropped = (*dropped, "MKNOD")
    return added, dropped


_HOST_KEYS = frozenset(fold(name) for name in wire_names(HostConfig))
_PREFIX = "Create."


def _stray(value: Mapping[str, Json], dropped: list[str]) -> tuple[HostConfig | None, list[str]]:
    """HostConfig's fields among the unknown top-level keys, and what to tell the client was left out.

    They are read as engines up to 26 would read them; those that are null or zero mean nothing anywhere.
    """
    tops = [name.removeprefix(_PREFIX) for name in dropped if name.startswith(_PREFIX)]
    found = {key: value[key] for key in tops if fold(key) in _HOST_KEYS}
    if not found:
        return None, dropped
    stray = HOST_CONFIG.read(found, [])
    unknown = [name for name in dropped if name.removeprefix(_PREFIX) not in found]
    return stray, [*unknown, *(_PREFIX + key for key in _given(stray))]


def _given(host: HostConfig) -> tuple[str, ...]:
    """The wire names of the fields that say something: neither zero nor an empty list or map."""
    written = cast("Mapping[str, Json]", HOST_CONFIG.to_json(host))
    return tuple(key for key, value in written.items() if value not in ([], {}))


def _stray_faults(stray: HostConfig, context: Context) -> Iterator[Broken]:
    """What would reach the daemon by the top level on engines up to 26."""
    yield from runtime_faults(stray, context.repo.policy)
    for key in _given(stray):
        if key not in _HARMLESS_AT_TOP:
            yield broken(Rule.TOP_LEVEL_HOST_CONFIG, f"key {key} beside HostConfig is not allowed")
