"""Docker's network types as field tables: endpoints of a container, and networks themselves. Pure.

Source: Docker Engine API up to 1.51, Go types `network.EndpointSettings`, `network.NetworkingConfig`,
`network.CreateRequest`, `network.ConnectOptions`, `network.DisconnectOptions`.
"""

# ruff: noqa: RUF009 - wire() makes a dataclass field

from collections.abc import Mapping
from dataclasses import dataclass

from gate.core.kinds import BOOL, INT64, STRING, STRING_MAP, STRINGS, map_of, pointer, slice_of, wire
from gate.core.structs import struct

Strings = tuple[str, ...] | None
StringMap = Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointIPAM:
    """`network.EndpointIPAMConfig`."""

    ipv4_address: str = wire("IPv4Address", STRING)
    ipv6_address: str = wire("IPv6Address", STRING)
    link_local_ips: Strings = wire("LinkLocalIPs", STRINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`network.EndpointSettings`, with the operational fields that recreating tools copy from inspect."""

    ipam_config: EndpointIPAM | None = wire("IPAMConfig", pointer(struct(EndpointIPAM, "IPAMConfig")))
    links: Strings = wire("Links", STRINGS)
    aliases: Strings = wire("Aliases", STRINGS)
    mac_address: str = wire("MacAddress", STRING)
    driver_opts: StringMap = wire("DriverOpts", STRING_MAP)
    gw_priority: int = wire("GwPriority", INT64)
    network_id: str = wire("NetworkID", STRING)
    endpoint_id: str = wire("EndpointID", STRING)
    gateway: str = wire("Gateway", STRING)
    ip_address: str = wire("IPAddress", STRING)
    ip_prefix_len: int = wire("IPPrefixLen", INT64)
    ipv6_gateway: str = wire("IPv6Gateway", STRING)
    global_ipv6_address: str = wire("GlobalIPv6Address", STRING)
    global_ipv6_prefix_len: int = wire("GlobalIPv6PrefixLen", INT64)
    dns_names: Strings = wire("DNSNames", STRINGS)


ENDPOINT = struct(Endpoint, "EndpointSettings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Networking:
    """`network.NetworkingConfig`.

    Engines answer 400 to a null endpoint, or crash their handler (26.1), so that null is refused here.
    """

    endpoints_config: Mapping[str, Endpoint] | None = wire(
        "EndpointsConfig", map_of(ENDPOINT, null_values=False)
    )


NETWORKING = struct(Networking, "NetworkingConfig")


@dataclass(frozen=True, slots=True, kw_only=True)
class IPAMPool:
    """`network.IPAMConfig`."""

    subnet: str = wire("Subnet", STRING)
    ip_range: str = wire("IPRange", STRING)
    gateway: str = wire("Gateway", STRING)
    auxiliary: StringMap = wire("AuxiliaryAddresses", STRING_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class IPAM:
    """`network.IPAM`."""

    driver: str = wire("Driver", STRING)
    options: StringMap = wire("Options", STRING_MAP)
    config: tuple[IPAMPool, ...] | None = wire("Config", slice_of(struct(IPAMPool, "IPAM.Config")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReference:
    """`network.ConfigReference`."""

    network: str = wire("Network", STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCreate:
    """`network.CreateRequest`."""

    name: str = wire("Name", STRING)
    check_duplicate: bool | None = wire("CheckDuplicate", pointer(BOOL))
    driver: str = wire("Driver", STRING)
    scope: str = wire("Scope", STRING)
    enable_ipv4: bool | None = wire("EnableIPv4", pointer(BOOL))
    enable_ipv6: bool | None = wire("EnableIPv6", pointer(BOOL))
    ipam: IPAM | None = wire("IPAM", pointer(struct(IPAM, "IPAM")))
    internal: bool = wire("Internal", BOOL)
    attachable: bool = wire("Attachable", BOOL)
    ingress: bool = wire("Ingress", BOOL)
    config_only: bool = wire("ConfigOnly", BOOL)
    config_from: ConfigReference | None = wire("ConfigFrom", pointer(struct(ConfigReference, "ConfigFrom")))
    options: StringMap = wire("Options", STRING_MAP)
    labels: StringMap = wire("Labels", STRING_MAP)


NETWORK_CREATE = struct(NetworkCreate, "NetworkCreate")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConnect:
    """`network.ConnectOptions`."""

    container: str = wire("Container", STRING)
    endpoint_config: Endpoint | None = wire("EndpointConfig", pointer(ENDPOINT))


NETWORK_CONNECT = struct(NetworkConnect, "NetworkConnect")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDisconnect:
    """`network.DisconnectOptions`."""

    container: str = wire("Container", STRING)
    force: bool = wire("Force", BOOL)


NETWORK_DISCONNECT = struct(NetworkDisconnect, "NetworkDisconnect")
