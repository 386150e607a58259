"""Docker's network types."""

import pytest

from gate.core.kinds import MismatchError
from gate.core.netmodel import ENDPOINT, NETWORK_CREATE, NETWORKING


def test_operational_fields_of_inspect_are_known() -> None:
    """Recreating tools copy an endpoint from inspect; none of its keys is reported as unknown."""
    dropped: list[str] = []
    endpoint = {
        "IPAMConfig": None, "Links": None, "Aliases": None, "MacAddress": "", "DriverOpts": None,
        "GwPriority": 0,
        "NetworkID": "n", "EndpointID": "e", "Gateway": "g", "IPAddress": "i", "IPPrefixLen": 16,
        "IPv6Gateway": "",
        "GlobalIPv6Address": "", "GlobalIPv6PrefixLen": 0, "DNSNames": None,
    }  # fmt: skip
    found = ENDPOINT.read(endpoint, dropped)
    assert dropped == []
    assert ENDPOINT.to_json(found) == {key: value for key, value in endpoint.items() if value}


def test_a_null_endpoint_would_crash_engine_26() -> None:
    with pytest.raises(MismatchError):
        NETWORKING.read({"EndpointsConfig": {"n": None, "m": {}}}, [])
    found = NETWORKING.read({"EndpointsConfig": {"m": {}}}, [])
    assert NETWORKING.to_json(found) == {"EndpointsConfig": {"m": {}}}


def test_pointers_keep_false() -> None:
    found = NETWORK_CREATE.read({"EnableIPv6": False, "Internal": False}, [])
    assert NETWORK_CREATE.to_json(found) == {"EnableIPv6": False}
