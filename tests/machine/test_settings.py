import ipaddress

import pytest

from base.errors import MalformedError
from machine.core.settings import EngineSettings, NetworkMode


def test_everything_has_a_default() -> None:
    assert EngineSettings.parse({}) == EngineSettings()


def test_what_is_set_is_read() -> None:
    found = EngineSettings.parse(
        {"dir": "/opt/engine", "network": "none", "address_pool": "172.30.0.0/16", "storage_driver": "vfs"}
    )
    assert found.dir == "/opt/engine"
    assert found.network is NetworkMode.NONE
    assert found.address_pool == ipaddress.IPv4Network("172.30.0.0/16")
    assert found.storage_driver == "vfs"


@pytest.mark.parametrize(
    "section",
    [
        {"folder": "/x"}, {"dir": "rel"}, {"dir": ""}, {"dir": 3}, {"network": "host"}, {"network": True},
        {"address_pool": "8.0.0.0/8"}, {"address_pool": "10.0.0.0/24"}, {"address_pool": "10.0.0.1/8"},
        {"address_pool": "fd00::/48"}, {"storage_driver": []},
    ],
)  # fmt: skip
def test_what_means_nothing_is_malformed(section: dict[str, object]) -> None:
    with pytest.raises(MalformedError):
        EngineSettings.parse(section)
