"""Networks: bridges, no host interface by any door."""

import json

import pytest

from gate.core.denial import Denial
from gate.core.policy import Forward
from tests.gate.world import World, allowing, body_of


def post(target: bytes, body: object, world: World | None = None) -> Forward | Denial:
    return (world or World()).decide("POST", target, json.dumps(body).encode())


FULL = {
    "Name": "n", "CheckDuplicate": True, "Driver": "bridge", "Scope": "local", "EnableIPv4": True,
    "EnableIPv6": False, "Internal": True, "Attachable": True, "Labels": {"a": "b"},
    "IPAM": {"Driver": "default", "Options": {}, "Config": [
        {"Subnet": "10.0.0.0/24", "IPRange": "10.0.0.0/25", "Gateway": "10.0.0.1",
        "AuxiliaryAddresses": {"a": "10.0.0.9"}}]},
    "Options": {"com.docker.network.driver.mtu": "1400", "com.docker.network.bridge.enable_icc": "false"},
}  # fmt: skip


def test_create_is_rebuilt() -> None:
    assert body_of(post(b"/networks/create", {**FULL, "Foo": 1})) == FULL


def test_the_driver_is_written_out() -> None:
    assert body_of(post(b"/networks/create", {"Name": "n"})) == {"Name": "n", "Driver": "bridge"}


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ({"Driver": "macvlan", "Options": {"parent": "eth0"}}, ("network-driver", "network-option")),
        ({"Driver": "ipvlan"}, ("network-driver",)),
        ({"Driver": "host"}, ("network-driver",)),
        ({"Driver": "overlay"}, ("network-driver",)),
        ({"driver": "null"}, ("network-driver",)),
        ({"Scope": "swarm"}, ("network-option",)),
        ({"Ingress": True}, ("network-option",)),
        ({"ConfigOnly": True}, ("network-option",)),
        ({"ConfigFrom": {"Network": "x"}}, ("network-option",)),
        ({"Options": {"com.docker.network.bridge.name": "br0"}}, ("network-option",)),
        ({"Options": {"com.docker.network.bridge.trusted_host_interfaces": "eth0"}}, ("network-option",)),
        ({"IPAM": {"Driver": "dhcp"}}, ("network-option",)),
        ({"IPAM": {"Options": {"x": "y"}}}, ("network-option",)),
    ],
)
def test_refused(body: dict[str, object], codes: tuple[str, ...]) -> None:
    decision = post(b"/networks/create", {"Name": "n", **body})
    assert isinstance(decision, Denial)
    assert decision.codes() == codes


def test_connect() -> None:
    body = {"Container": "c", "EndpointConfig": {"Aliases": ["a"], "IPAMConfig": {"IPv4Address": "10.0.0.2"}}}
    assert body_of(post(b"/networks/n/connect", body)) == body
    assert body_of(post(b"/networks/n/connect", {"Container": "c", "EndpointConfig": None})) == {
        "Container": "c"
    }


def test_connect_to_the_host() -> None:
    decision = post(b"/networks/host/connect", {"Container": "c"})
    assert isinstance(decision, Denial)
    assert decision.codes() == ("network-mode",)
    assert isinstance(
        post(b"/networks/host/connect", {"Container": "c"}, allowing(network_host=True)), Forward
    )


def test_endpoint_options() -> None:
    body = {"Container": "c", "EndpointConfig": {"DriverOpts": {"parent": "eth0"}}}
    decision = post(b"/networks/n/connect", body)
    assert isinstance(decision, Denial)
    assert decision.codes() == ("network-option",)


def test_disconnect() -> None:
    assert body_of(post(b"/networks/n/disconnect", {"Container": "c", "Force": True, "X": 1})) == {
        "Container": "c",
        "Force": True,
    }
