import dataclasses
import json

import pytest

from base.errors import RefusedError
from machine.core.daemon_config import (
    TOOLS,
    Bridge,
    DaemonPlan,
    arguments,
    check_engine,
    check_socket_paths,
    daemon_json,
    engine_version,
    environment,
    version_in,
)

PLAN = DaemonPlan(
    guid="g",
    config_file="/r/private/daemon.json",
    socket="/r/private/dockerd.sock",
    pid_file="/r/private/dockerd.pid",
    data_root="/d/docker",
    exec_root="/x/1",
    home="/d",
    bin_dir="/r/private/bin",
    cdi_spec_dir="/r/cdi",
    pools=("10.0.1.0/24",),
    bridge=None,
    runtimes={},
    storage_driver=None,
    docker_proxy=None,
    docker_init=None,
)


def config(**changes: object) -> dict[str, object]:
    parsed: dict[str, object] = json.loads(daemon_json(dataclasses.replace(PLAN, **changes)))
    return parsed


def test_the_daemon_resolves_devices_from_the_projection_alone() -> None:
    assert config()["cdi-spec-dirs"] == ["/r/cdi"]
    assert config()["features"] == {"cdi": True}


def test_the_daemon_listens_on_its_private_socket_alone() -> None:
    assert config()["hosts"] == ["unix:///r/private/dockerd.sock"]


def test_nothing_brings_hardware_by_itself() -> None:
    assert config()["default-runtime"] == "runc"
    assert "runtimes" not in config()
    assert config()["builder"] == {
        "entitlements": {"network-host": False, "security-insecure": False, "device": False}
    }
    assert config()["experimental"] is False
    assert config()["live-restore"] is False


def test_hooks_that_register_device_drivers_cannot_be_found() -> None:
    assert not [tool for tool in TOOLS if "nvidia" in tool or "amd" in tool]
    assert environment({"PATH": "/usr/bin"}, PLAN)["PATH"] == "/r/private/bin"


def test_without_a_bridge_the_machines_routing_is_left_alone() -> None:
    assert config()["bridge"] == "none"
    assert config()["ip-forward"] is False
    bridged = config(bridge=Bridge(device="rd-1", gateway="10.0.0.1/24"))
    assert bridged["bridge"] == "rd-1"
    assert bridged["ip-forward"] is True


@pytest.mark.parametrize("bridge", [None, Bridge(device="rd-1", gateway="10.0.0.1/24")])
def test_daemons_leave_the_packet_filter_alone(bridge: Bridge | None) -> None:
    found = config(bridge=bridge)
    assert (found["iptables"], found["ip6tables"], found["ip-masq"]) == (False, False, False)


def test_optional_parts_appear_when_they_are_there() -> None:
    found = config(
        docker_proxy="/p", docker_init="/i", storage_driver="vfs", runtimes={"runsc": "/usr/bin/runsc"}
    )
    assert found["userland-proxy-path"] == "/p"
    assert found["userland-proxy"] is True
    assert found["init-path"] == "/i"
    assert found["storage-driver"] == "vfs"
    assert found["runtimes"] == {"runsc": {"path": "/usr/bin/runsc"}}
    assert config()["userland-proxy"] is False


def test_equal_plans_give_equal_files_whatever_the_order_of_runtimes() -> None:
    one = dataclasses.replace(PLAN, runtimes={"a": "/a", "b": "/b"})
    other = dataclasses.replace(PLAN, runtimes={"b": "/b", "a": "/a"})
    assert daemon_json(one) == daemon_json(other)


def test_the_environment_is_ours_but_for_proxies_and_certificates() -> None:
    inherited = {
        "HTTPS_PROXY": "http://p", "SSL_CERT_FILE": "/c", "NVIDIA_VISIBLE_DEVICES": "all", "LD_PRELOAD": "/l",
        "DOCKER_HOST": "x", "DOCKER_MIN_API_VERSION": "1.12", "GODEBUG": "x", "HOME": "/root",
    }  # fmt: skip
    found = environment(inherited, PLAN)
    assert set(found) == {"HTTPS_PROXY", "SSL_CERT_FILE", "PATH", "HOME", "TMPDIR"}
    assert found["HOME"] == "/d"


def test_the_command_line_names_the_configuration_and_nothing_else() -> None:
    assert arguments("/e/dockerd", PLAN) == ("/e/dockerd", "--config-file", "/r/private/daemon.json")


@pytest.mark.parametrize(
    ("socket", "exec_root", "fits"),
    [
        ("/" + 106 * "s", "/x", True),
        ("/" + 107 * "s", "/x", False),
        ("/s", "/" + 73 * "x", True),
        ("/s", "/" + 74 * "x", False),
        ("/" + 54 * "ß", "/x", False),
    ],
)
def test_socket_paths_are_counted_in_bytes(socket: str, exec_root: str, fits: bool) -> None:
    if fits:
        check_socket_paths(socket=socket, exec_root=exec_root, root="/")
    else:
        with pytest.raises(RefusedError):
            check_socket_paths(socket=socket, exec_root=exec_root, root="/")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("28.5.2", (28, 5)), ("26.1.5+dfsg1", (26, 1)), ("25.0.0-rc.1", (25, 0)), ("29.0~beta", (29, 0)),
        ("", (0, 0)),         ("dev", (0, 0)), ("28", (0, 0)), ("v28.1", (0, 0)), ("99999.1.2", (0, 0)),
    ],
)  # fmt: skip
def test_engine_versions(text: str, expected: tuple[int, int]) -> None:
    assert engine_version(text) == expected


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "24.0.9", "dev", ""])
def test_engines_without_cdi_are_refused(version: str) -> None:
    with pytest.raises(RefusedError):
        check_engine(version)


@pytest.mark.parametrize("version", ["25.0.0", "26.1.5+dfsg1", "28.5.2", "31.0"])
def test_engines_with_cdi_are_accepted(version: str) -> None:
    check_engine(version)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("Docker version 28.5.2, build deadbeef\n", "28.5.2"),
        ("Docker version 26.1.5+dfsg1, build a72d7cd\n", "26.1.5+dfsg1"),
        ("version", ""),
        ("something else", ""),
        ("", ""),
    ],
)
def test_the_version_that_dockerd_prints(output: str, expected: str) -> None:
    assert version_in(output) == expected
