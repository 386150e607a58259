"""Networks: bridges of the repo's own daemon, and no host interface by any door. Pure.

Source: facts page on gates, D10 and the report on host networking by the newer field; libnetwork's bridge
options.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from gate.core.denial import Broken, Rule, broken, refuse, show, show_options
from gate.core.docker_json import decode, encode
from gate.core.kinds import Go
from gate.core.netmodel import (
    NETWORK_CONNECT,
    NETWORK_CREATE,
    NETWORK_DISCONNECT,
    Endpoint,
    NetworkConnect,
    NetworkCreate,
    NetworkDisconnect,
)
from gate.core.policy import Context, Decision, Facts, Forward, Lookup
from gate.core.repo import RepoPolicy
from gate.core.router import Matched

T = TypeVar("T")

_BRIDGE = "com.docker.network.bridge."
_OPTIONS = frozenset({
    _BRIDGE + "enable_icc", _BRIDGE + "enable_ip_masquerade", _BRIDGE + "host_binding_ipv4",
    _BRIDGE + "inhibit_ipv4",
    _BRIDGE + "gateway_mode_ipv4", _BRIDGE + "gateway_mode_ipv6", "com.docker.network.driver.mtu",
    "com.docker.network.container_iface_prefix", "com.docker.network.enable_ipv4",
    "com.docker.network.enable_ipv6",
    "com.docker.network.internal",
})  # fmt: skip
"""Options that name no interface of the host; `bridge.name` would take another repo's bridge, or a LAN's."""

_ENDPOINT_OPTIONS = frozenset({"com.docker.network.endpoint.ifname", "com.docker.network.endpoint.sysctls"})


def endpoint_faults(endpoints: Mapping[str, Endpoint | None], policy: RepoPolicy) -> Iterator[Broken]:
    """The networks a container joins: the host's by this field is the host's network all the same."""
    for name, endpoint in endpoints.items():
        yield from _network_faults(name, policy)
        if endpoint is not None and endpoint.network_id:
            yield from _network_faults(endpoint.network_id, policy)  # the daemon prefers it to the name
        for key in (endpoint and endpoint.driver_opts) or ():
            if key not in _ENDPOINT_OPTIONS:
                yield broken(Rule.NETWORK_OPTION, f"endpoint option {show(key)} is not allowed")


def _network_faults(name: str, policy: RepoPolicy) -> Iterator[Broken]:
    if name == "host" and not policy.network_host:
        yield broken(Rule.NETWORK_MODE, "joining network host is not allowed")
    elif name.startswith("container:"):
        yield broken(Rule.NETWORK_MODE, f"joining network {show(name)} is not allowed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNetwork:
    """`POST /networks/create`."""

    matched: Matched
    body: NetworkCreate
    dropped: tuple[str, ...]

    @classmethod
    def parse(cls, raw: bytes, matched: Matched) -> "CreateNetwork":
        """The body, typed; see `decode` and `Go` for what raises MalformedError."""
        dropped: list[str] = []
        body = NETWORK_CREATE.read(decode(raw), dropped)
        return cls(matched=matched, body=body, dropped=tuple(dropped))

    def lookups(self, _context: Context, _facts: Facts) -> tuple[Lookup, ...]:
        """Nothing to ask."""
        return ()

    def decide(self, context: Context, _facts: Facts) -> Decision:
        """A bridge with harmless options, or every reason why not."""
        found = tuple(_create_faults(self.body))
        if found:
            return refuse(found, context.repo.name)
        body = replace(self.body, driver=self.body.driver or "bridge")
        return _forward(self.matched, NETWORK_CREATE, body)


def _create_faults(body: NetworkCreate) -> Iterator[Broken]:
    if body.driver not in {"", "bridge"}:
        yield broken(Rule.NETWORK_DRIVER, f"network driver {show(body.driver)} is not allowed")
    if body.scope not in {"", "local"} or body.ingress:
        yield broken(Rule.NETWORK_OPTION, f"network scope {show(body.scope or 'ingress')} is not allowed")
    if body.config_only or body.config_from is not None:
        yield broken(Rule.NETWORK_OPTION, "network configurations (config-only, config-from) are not allowed")
    options = {key: value for key, value in (body.options or {}).items() if key not in _OPTIONS}
    if options:
        yield broken(Rule.NETWORK_OPTION, f"network options {show_options(options)} are not allowed")
    ipam = body.ipam
    if ipam is not None and ipam.driver not in {"", "default"}:
        yield broken(Rule.NETWORK_OPTION, f"IPAM driver {show(ipam.driver)} is not allowed")
    for key in (ipam and ipam.options) or ():
        yield broken(Rule.NETWORK_OPTION, f"IPAM option {show(key)} is not allowed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectNetwork:
    """`POST /networks/{network}/connect`."""

    matched: Matched
    body: NetworkConnect

    @classmethod
    def parse(cls, raw: bytes, matched: Matched) -> "ConnectNetwork":
        """The body, typed."""
        return cls(matched=matched, body=NETWORK_CONNECT.read(decode(raw), []))

    def lookups(self, _context: Context, _facts: Facts) -> tuple[Lookup, ...]:
        """Nothing to ask: every container of this daemon is the repo's own."""
        return ()

    def decide(self, context: Context, _facts: Facts) -> Decision:
        """Any network but the host's, with harmless endpoint options."""
        name = self.matched.params["network"]
        found = tuple(endpoint_faults({name: self.body.endpoint_config}, context.repo.policy))
        return (
            refuse(found, context.repo.name) if found else _forward(self.matched, NETWORK_CONNECT, self.body)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DisconnectNetwork:
    """`POST /networks/{network}/disconnect`."""

    matched: Matched
    body: NetworkDisconnect

    @classmethod
    def parse(cls, raw: bytes, matched: Matched) -> "DisconnectNetwork":
        """The body, typed."""
        return cls(matched=matched, body=NETWORK_DISCONNECT.read(decode(raw), []))

    def lookups(self, _context: Context, _facts: Facts) -> tuple[Lookup, ...]:
        """Nothing to ask."""
        return ()

    def decide(self, _context: Context, _facts: Facts) -> Decision:
        """Always: leaving a network gives nothing."""
        return _forward(self.matched, NETWORK_DISCONNECT, self.body)


def _forward(matched: Matched, kind: Go[T], body: T) -> Forward:
    return Forward(
        target=matched.target, content_type=matched.route.content_type, body=encode(kind.to_json(body))
    )
