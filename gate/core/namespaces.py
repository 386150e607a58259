"""Namespaces a container shares: its own, another container's by full id, the host's by policy. Pure.

Source: facts page on gates, E6 and D11; moby's mode strings, which are case-sensitive. Another container
is looked up once and named by its full id from then on, so that a rename between check and use changes
nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gate.core.denial import Broken, Rule, broken, show
from gate.core.devices import grant_faults, requested_devices
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
_IPC_OWN = frozenset({"", "none", "private", "shareable"})


def joined(host: HostConfig) -> tuple[str, ...]:
    """The containers whose namespaces are to be shared, as the client named them."""
    modes = (host.network_mode, host.ipc_mode, host.pid_mode)
    return tuple(dict.fromkeys(mode.removeprefix(CONTAINER) for mode in modes if mode.startswith(CONTAINER)))


def namespace_lookups(host: HostConfig) -> tuple[ContainerLookup, ...]:
    """The containers to ask about."""
    return tuple(ContainerLookup(ref) for ref in joined(host))


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


def joined_faults(host: HostConfig, context: Context, facts: Facts) -> Iterator[Broken]:
    """Other containers' namespaces: only of containers that are themselves within the policy."""
    policy = context.repo.policy
    if host.pid_mode.startswith(CONTAINER) and Namespace.PID_CONTAINER not in policy.namespaces:
        yield broken(Rule.PID_MODE, f"--pid {show(host.pid_mode)} is not allowed")
    for rule, mode in (
        (Rule.NETWORK_MODE, host.network_mode),
        (Rule.IPC_MODE, host.ipc_mode),
        (Rule.PID_MODE, host.pid_mode),
    ):
        if mode.startswith(CONTAINER):
            yield from _container_faults(rule, mode.removeprefix(CONTAINER), context, facts)


def _container_faults(rule: Rule, ref: str, context: Context, facts: Facts) -> Iterator[Broken]:
    lookup = ContainerLookup(ref)
    fact = facts.get(lookup)
    if not isinstance(fact, ContainerFact):
        known = lookup in facts or not OBJECT_NAME.match(ref)
        words = (
            f"no such container: {show(ref)}" if known else f"container {show(ref)} could not be inspected"
        )
        yield broken(Rule.OBJECT_UNKNOWN if known else Rule.LOOKUP_FAILED, words)
        return
    other, policy = fact.host_config, context.repo.policy
    if rule is Rule.NETWORK_MODE and other.network_mode == "host" and not policy.network_host:
        yield broken(rule, f"container {show(ref)} uses the host's network, which is not allowed")
    if rule is Rule.IPC_MODE and other.ipc_mode == "host" and Namespace.IPC_HOST not in policy.namespaces:
        yield broken(rule, f"container {show(ref)} uses the host's IPC namespace, which is not allowed")
    if rule is Rule.PID_MODE:
        # A process of the same user can copy an open device descriptor past the device cgroup.
        yield from grant_faults(requested_devices(other), context)
        if other.pid_mode == "host" or other.privileged or other.devices:
            yield broken(rule, f"container {show(ref)} holds the host's processes or devices")


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
