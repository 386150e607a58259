"""Namespaces a container shares: its own, another container's by full id, the host's by policy. Pure.

Source: facts page on gates, E6 and D11; moby's mode strings, which are case-sensitive. Another container
is looked up once and named by its full id from then on, so that a rename between check and use changes
nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gate.core.denial import Broken, Rule, broken, show
from gate.core.devices import device_faults
from gate.core.facts import ContainerFact
from gate.core.model import HostConfig
from gate.core.policy import ContainerLookup, Context, Facts
from gate.core.repo import Namespace, RepoPolicy
from gate.core.target import OBJECT_NAME

CONTAINER = "container:"


@dataclass(frozen=True, slots=True)
class _Host:
    """A mode that has nothing between its own and the host's."""

    attribute: str
    option: str
    rule: Rule
    own: frozenset[str]
    namespace: Namespace


_HOST_MODES = (
    _Host("uts_mode", "--uts", Rule.UTS_MODE, frozenset({""}), Namespace.UTS_HOST),
    _Host("userns_mode", "--userns", Rule.USERNS_MODE, frozenset({""}), Namespace.USERNS_HOST),
    _Host(
        "cgroupns_mode", "--cgroupns", Rule.CGROUPNS_MODE, frozenset({"", "private"}), Namespace.CGROUPNS_HOST
    ),
)
_JOINABLE = (
    (Rule.NETWORK_MODE, "network_mode"),
    (Rule.IPC_MODE, "ipc_mode"),
    (Rule.PID_MODE, "pid_mode"),
)
_IPC_OWN = frozenset({"", "none", "private", "shareable"})


def namespace_lookups(host: HostConfig, facts: Facts) -> tuple[ContainerLookup, ...]:
    """The containers whose namespaces are to be shared, and those whose namespaces they share in turn."""
    wanted, found = [host], dict[ContainerLookup, None]()
    while wanted:
        modes = (getattr(wanted[-1], attribute) for _, attribute in _JOINABLE)
        new = [ContainerLookup(mode.removeprefix(CONTAINER)) for mode in modes if mode.startswith(CONTAINER)]
        wanted.pop()
        for lookup in new:
            fact = facts.get(lookup)
            if lookup not in found and isinstance(fact, ContainerFact):
                wanted.append(fact.host_config)
            found[lookup] = None
    return tuple(found)


def host_namespace_faults(
    host: HostConfig, policy: RepoPolicy, *, existing: bool = False
) -> Iterator[Broken]:
    """The host's namespaces, beyond policy.

    `existing` is for a container that the daemon already filled with its defaults, of which the cgroup
    namespace is the host's on older machines.
    """
    if host.network_mode == "host" and not policy.network_host:
        yield broken(Rule.NETWORK_MODE, "--network host is not allowed")
    if host.pid_mode not in {"", "private"} and not host.pid_mode.startswith(CONTAINER):
        yield broken(Rule.PID_MODE, f"--pid {show(host.pid_mode)} is not allowed")
    if not (
        host.ipc_mode in _IPC_OWN
        or host.ipc_mode.startswith(CONTAINER)
        or (host.ipc_mode == "host" and Namespace.IPC_HOST in policy.namespaces)
    ):
        yield broken(Rule.IPC_MODE, f"--ipc {show(host.ipc_mode)} is not allowed")
    for mode in _HOST_MODES:
        value = getattr(host, mode.attribute)
        allowed = value in mode.own or (value == "host" and mode.namespace in policy.namespaces)
        if not allowed and not (existing and mode.namespace is Namespace.CGROUPNS_HOST):
            yield broken(mode.rule, f"{mode.option} {show(value)} is not allowed")


def joined_faults(
    host: HostConfig, context: Context, facts: Facts, *, existing: bool = False
) -> Iterator[Broken]:
    """Other containers' namespaces: only of containers that are themselves within the policy.

    `existing` is for a container that joined them earlier: one of them may have been removed meanwhile.
    """
    if host.pid_mode.startswith(CONTAINER) and Namespace.PID_CONTAINER not in context.repo.policy.namespaces:
        yield broken(Rule.PID_MODE, f"--pid {show(host.pid_mode)} is not allowed")
    for rule, attribute in _JOINABLE:
        mode, gone_is_known, followed = getattr(host, attribute), existing, set[str]()
        while mode.startswith(CONTAINER) and mode not in followed:
            followed.add(mode)
            ref = mode.removeprefix(CONTAINER)
            lookup = ContainerLookup(ref)
            fact = facts.get(lookup)
            if not isinstance(fact, ContainerFact):
                if not (gone_is_known and lookup in facts):
                    yield _unknown(lookup, facts)
                break
            yield from _holder_faults(rule, ref, fact.host_config, context)
            mode, gone_is_known = getattr(fact.host_config, attribute), True


def _unknown(lookup: ContainerLookup, facts: Facts) -> Broken:
    if lookup in facts or not OBJECT_NAME.match(lookup.ref):
        return broken(Rule.OBJECT_UNKNOWN, f"no such container: {show(lookup.ref)}")
    return broken(Rule.LOOKUP_FAILED, f"container {show(lookup.ref)} could not be inspected")


def _holder_faults(rule: Rule, ref: str, other: HostConfig, context: Context) -> Iterator[Broken]:
    policy = context.repo.policy
    if rule is Rule.NETWORK_MODE and other.network_mode == "host" and not policy.network_host:
        yield broken(rule, f"container {show(ref)} uses the host's network, which is not allowed")
    if rule is Rule.IPC_MODE and other.ipc_mode == "host" and Namespace.IPC_HOST not in policy.namespaces:
        yield broken(rule, f"container {show(ref)} uses the host's IPC namespace, which is not allowed")
    if rule is Rule.PID_MODE:
        # A process of the same user can copy an open device descriptor past the device cgroup.
        yield from device_faults(other, context)
        if other.pid_mode == "host" or other.privileged:
            yield broken(rule, f"container {show(ref)} holds the host's processes or all devices")


def pinned(host: HostConfig, facts: Facts) -> HostConfig:
    """The same modes with every other container named by its full id."""
    if not any(mode.startswith(CONTAINER) for mode in (host.network_mode, host.ipc_mode, host.pid_mode)):
        return host
    return replace(
        host,
        network_mode=_pin(host.network_mode, facts),
        ipc_mode=_pin(host.ipc_mode, facts),
        pid_mode=_pin(host.pid_mode, facts),
    )


def _pin(mode: str, facts: Facts) -> str:
    fact = facts.get(ContainerLookup(mode.removeprefix(CONTAINER))) if mode.startswith(CONTAINER) else None
    return CONTAINER + fact.id if isinstance(fact, ContainerFact) else mode
