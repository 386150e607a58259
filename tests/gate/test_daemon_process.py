import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core.daemon_process import DaemonProcess, config_file, option_values


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (("dockerd", "-H", "tcp://0.0.0.0:2375"), ("tcp://0.0.0.0:2375",)),
        (("dockerd", "-H=tcp://1", "-Htcp://2", "--host=tcp://3"), ("tcp://1", "tcp://2", "tcp://3")),
        (("dockerd", "--host", "tcp://4"), ("tcp://4",)),
        (("dockerd", "--hosts", "tcp://1", "--host"), ()),
    ],
)  # fmt: skip
def test_listeners_of_the_command_line(words: tuple[str, ...], hosts: tuple[str, ...]) -> None:
    assert DaemonProcess.of(words, b"", ()).hosts == hosts


def test_listeners_of_the_configuration_and_which_reach_the_network() -> None:
    config = json.dumps({"hosts": ["unix:///run/d.sock", "tcp://127.0.0.1:1", 7]}).encode()
    process = DaemonProcess.of(("dockerd", "-H", "fd://"), config, ("hook",))
    assert process.hosts == ("fd://", "unix:///run/d.sock", "tcp://127.0.0.1:1")
    assert process.network_hosts == ("tcp://127.0.0.1:1",)
    assert process.hooks == ("hook",)


@pytest.mark.parametrize(
    ("config", "entitlements"),
    [
        (None, None),
        (b"{", None),
        (b"[]", None),
        (b"", {}),
        (b'{"builder": 1}', {}),
        (b'{"builder": {"entitlements": {"device": true, "network-host": false, "x": true}}}',
         {"device": True, "network-host": False}),
        (b'{"builder": {"entitlements": {"security-insecure": 1}}}', {}),
    ],
)  # fmt: skip
def test_entitlements(config: bytes | None, entitlements: dict[str, bool] | None) -> None:
    assert DaemonProcess.of(("dockerd",), config, ()).entitlements == entitlements


def test_where_the_configuration_lies() -> None:
    assert config_file(("dockerd",)) == "/etc/docker/daemon.json"
    assert config_file(("dockerd", "--config-file", "/a", "--config-file=/b")) == "/b"


@given(
    st.lists(st.sampled_from(["-H", "--host", "-Hx", "--host=", "--", ""])),
    st.none() | st.binary(max_size=20),
)
def test_it_is_total(words: list[str], config: bytes | None) -> None:
    process = DaemonProcess.of(words, config, ())
    assert len(process.hosts) <= len(words) + 20
    assert list(option_values(words, "--config-file")) == []
