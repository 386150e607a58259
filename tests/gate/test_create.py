"""Create: every broken rule at once, and a body rebuilt from what was read."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from base.errors import MalformedError
from gate.core.create import CREATE_BODY, CreateRequest
from gate.core.denial import Denial
from gate.core.docker_json import decode
from gate.core.policy import Forward
from gate.core.routes import Matched, match
from tests.gate.world import CREATE, World, allowing, body_of, cdi, host_of

MATCHED = match("POST", CREATE)
assert isinstance(MATCHED, Matched)


def sent_for(raw: str) -> dict[str, object]:
    return body_of(World().decide("POST", CREATE, raw.encode()))


def codes_for(raw: str) -> tuple[str, ...]:
    decision = World().decide("POST", CREATE, raw.encode())
    return decision.codes() if isinstance(decision, Denial) else ()


def test_every_broken_rule_at_once() -> None:
    host = {
        "Privileged": True,
        "Runtime": "nvidia",
        "DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["0"], "Capabilities": [["gpu"]]}],
        "Binds": ["/dev:/dev"],
        "PidMode": "host",
    }
    assert World().codes(host) == ("device-driver", "privileged", "runtime", "pid-mode", "bind-device")


@pytest.mark.parametrize(
    "raw",
    [
        '{"Image":"x","hOSTcONFIG":{"pRIVILEGED":true}}',
        '{"Image":"x","Ho\u017ftConfig":{"Privileged":true}}',
        '{"Image":"x","Ho\\u017ftConfig":{"\\u0050rivileged":true}}',
        '{"Image":"x","\\u0048ostConfig":{"Privileged":true}}',
    ],
)
def test_no_spelling_hides_a_privilege(raw: str) -> None:
    assert codes_for(raw) == ("privileged",)


@pytest.mark.parametrize(
    "raw",
    [
        "", "null", "[]", '"x"', "1", '[{"Image":"x"}]', '{"Image":"x"}}', '{"Image":"x"}{}',
        '{"HostConfig":{"Privileged":true},"HostConfig":null}',
        '{"HostConfig":{"Privileged":true},"hostconfig":{}}',
        '{"HostConfig":{"DeviceRequests":[],"deviceRequests":[]}}',
        '{"HostConfig":{"Memory":"zz","Privileged":true}}', '{"HostConfig":{"Memory":1.0}}',
        '{"HostConfig":{"Memory":NaN}}', '{"HostConfig":[]}', '{"Env":"A=b"}', '{"Env":["A=\\ud800"]}',
        '{"HostConfig":{"Ulimits":[null]}}', '{"Tty":1}', '{"Q":' + "[" * 40 + "]" * 40 + "}",
    ],
)  # fmt: skip
def test_what_two_readers_could_read_differently_is_refused(raw: str) -> None:
    with pytest.raises(MalformedError):
        World().decide("POST", CREATE, raw.encode())


@pytest.mark.parametrize(
    ("top", "codes"),
    [
        ({"Privileged": True}, ("top-level-host-config",)),
        ({"privileged": True}, ("top-level-host-config",)),
        ({"DeviceRequests": [cdi("nvidia.com/gpu=0")]}, ("top-level-host-config",)),
        ({"Devices": [{"PathOnHost": "/dev/sda"}], "Binds": ["/:/x"]}, ("top-level-host-config",)),
        ({"Runtime": "nvidia"}, ("runtime",)),
        ({"VolumeDriver": "nfs"}, ("top-level-host-config",)),
        ({"Privileged": False, "Devices": [], "Binds": None, "Annotations": {}}, ()),
        ({"MemorySwappiness": 0}, ("top-level-host-config",)),
        ({"Privileged": False, "Devices": None, "Runtime": None, "CapAdd": None}, ()),
        ({"Memory": 5, "CpuShares": 1, "Runtime": "runc"}, ()),
    ],
)
def test_host_config_at_the_top_level(top: dict[str, object], codes: tuple[str, ...]) -> None:
    """Engines up to 26 honour these keys when HostConfig is absent or null."""
    for host in ({}, None):
        decision = World().create(host, **top)
        found = decision.codes() if isinstance(decision, Denial) else ()
        assert found == codes
        if isinstance(decision, Forward):
            assert set(body_of(decision)) == {"Image", "HostConfig"}


def test_null_host_config_is_sent_as_an_object() -> None:
    """Engines up to 26 look for its keys at the top level only when it is absent or null."""
    assert sent_for('{"Image":"x","HostConfig":null}') == {"Image": "x", "HostConfig": {}}


def test_the_image_is_always_named() -> None:
    """Engines tell a body without any key of the configuration from one with an empty image."""
    assert sent_for("{}") == {"Image": "", "HostConfig": {}}


def test_unknown_keys_are_left_out_and_named() -> None:
    decision = World().create({"Foo": 1, "NetworkMode": "none"}, Bar={"x": [1]}, Memory=5)
    assert isinstance(decision, Forward)
    assert decision.body is not None
    assert json.loads(decision.body) == {"Image": "bb:1", "HostConfig": {"NetworkMode": "none"}}
    named = " ".join(decision.response_warnings)
    assert all(key in named for key in ("HostConfig.Foo", "Create.Bar", "Create.Memory"))


def test_a_plain_client_is_not_warned() -> None:
    decision = World().create({"NetworkMode": "none"}, Env=["A=b"])
    assert isinstance(decision, Forward)
    assert decision.response_warnings == ()


def test_what_a_container_is_made_of_arrives_unchanged() -> None:
    body = {
        "Hostname": "h", "Domainname": "d", "User": "u", "AttachStdin": True, "AttachStdout": True,
        "AttachStderr": True, "ExposedPorts": {"80/tcp": {}}, "Tty": True, "OpenStdin": True,
        "StdinOnce": True,
        "Env": ["A=\u00fc", "B"], "Cmd": ["a", "b"], "ArgsEscaped": True, "Image": "i", "Volumes": {"/v": {}},
        "WorkingDir": "/w", "Entrypoint": [], "NetworkDisabled": True, "MacAddress": "02:42:ac:11:00:02",
        "OnBuild": ["RUN x"], "Labels": {"Key": "1", "key": "2"}, "StopSignal": "SIGTERM", "StopTimeout": 0,
        "Shell": ["/bin/sh"],
        "Healthcheck": {"Test": ["CMD", "x"], "Interval": 1, "Timeout": 2, "StartPeriod": 3,
        "StartInterval": 4,
                        "Retries": 5},
        "HostConfig": {
            "CpuShares": 1, "Memory": 2, "NanoCpus": 3, "BlkioWeight": 4, "CpuPeriod": 5, "CpuQuota": 6,
            "CpuRealtimePeriod": 7, "CpuRealtimeRuntime": 8, "CpusetCpus": "0", "CpusetMems": "0",
            "KernelMemory": 9, "KernelMemoryTCP": 10, "MemoryReservation": 11, "MemorySwap": -1,
            "MemorySwappiness": 0, "OomKillDisable": False, "PidsLimit": 0,
            "Ulimits": [{"Name": "nofile", "Hard": 2, "Soft": 1}], "CpuCount": 1, "CpuPercent": 1,
            "IOMaximumIOps": 1, "IOMaximumBandwidth": 2**64 - 1, "Binds": ["v:/v:ro"],
            "LogConfig": {"Type": "local", "Config": {"max-size": "1m"}}, "NetworkMode": "net",
            "PortBindings": {"80/tcp": [{"HostIp": "::", "HostPort": "80"}], "81/tcp": None},
            "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}, "ConsoleSize": [24, 80],
            "CapAdd": ["CHOWN"], "CapDrop": ["ALL"], "CgroupnsMode": "private", "Dns": ["1.1.1.1"],
            "DnsOptions": [], "DnsSearch": ["."], "ExtraHosts": ["a:1.1.1.1"], "GroupAdd": ["video"],
            "IpcMode": "private", "Links": ["a:b"], "OomScoreAdj": 1, "PidMode": "private",
            "PublishAllPorts": True, "ReadonlyRootfs": True, "SecurityOpt": ["no-new-privileges"],
            "Tmpfs": {"/t": "size=1m"}, "ShmSize": 1, "Sysctls": {"net.core.somaxconn": "1"},
            "Runtime": "runc", "Isolation": "default", "Init": False,
            "Mounts": [
                {"Type": "volume", "Source": "v", "Target": "/v2", "ReadOnly": True, "Consistency": "cached",
                 "VolumeOptions": {"NoCopy": True, "Labels": {"a": "b"}, "Subpath": "s",
                                   "DriverConfig": {"Name": "local"}}},
                {"Type": "tmpfs", "Target": "/t2", "TmpfsOptions": {"SizeBytes": 1, "Mode": 448,
                                                                    "Options": [["noexec"]]}},
                {"Type": "image", "Source": "i", "Target": "/i", "ImageOptions": {"Subpath": "x"}},
            ],
        },
        "NetworkingConfig": {"EndpointsConfig": {
            "net": {"IPAMConfig": {"IPv4Address": "10.0.0.2", "IPv6Address": "fd::2", "LinkLocalIPs": ["1"]},
                    "Links": ["a"], "Aliases": ["b"], "MacAddress": "x", "GwPriority": 1,
                    "DriverOpts": {"com.docker.network.endpoint.ifname": "eth9"}, "DNSNames": ["c"]},
            "default": {},
        }},
    }  # fmt: skip
    assert sent_for(json.dumps(body)) == body


def test_name_and_platform_stay() -> None:
    decision = World().decide("POST", CREATE + b"?name=a&platform=linux%2Famd64", b'{"Image":"x"}')
    assert isinstance(decision, Forward)
    assert decision.target == CREATE + b"?name=a&platform=linux%2Famd64"
    assert decision.content_type == b"application/json"


def test_devices_are_told() -> None:
    decision = World().create({"DeviceRequests": [cdi("nvidia.com/gpu=0")]})
    assert isinstance(decision, Forward)
    assert [str(name) for name in decision.devices] == ["nvidia.com/gpu=0"]


def test_networks_by_endpoint() -> None:
    config = {"EndpointsConfig": {"host": {}}}
    assert World().codes({}, NetworkingConfig=config) == ("network-mode",)
    assert allowing(network_host=True).codes({}, NetworkingConfig=config) == ()
    assert World().codes({}, NetworkingConfig={"EndpointsConfig": {"container:x": {}}}) == ("network-mode",)
    by_id = {"EndpointsConfig": {"n": {"NetworkID": "host"}}}
    assert World().codes({}, NetworkingConfig=by_id) == ("network-mode",)


# Generated requests: real keys in odd spellings, with values of any kind.

FIELDS = [
    "Image", "Env", "Cmd", "HostConfig", "hostconfig", "Ho\u017ftConfig", "NetworkingConfig",
    "Privileged", "Binds",
    "Mounts", "CapAdd", "DeviceRequests", "Devices", "Driver", "DeviceIDs", "Runtime", "PidMode",
    "VolumesFrom",
    "Tmpfs", "Labels", "EndpointsConfig", "Type", "Source", "Target", "Memory", "SecurityOpt", "MaskedPaths",
]  # fmt: skip
SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 2**64) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "cdi", "nvidia", "host", "container:c", "/dev:/x", "v:/x", "nvidia.com/gpu=0",
    "SYS_ADMIN",
                       "bind", "/dev", "ALL", "runc"])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=15,
)
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6)


@settings(max_examples=300)
@given(BODIES)
def test_total_and_what_is_sent_means_the_same_again(body: dict[str, object]) -> None:
    """Deciding never raises; a sent body, decided again, is sent unchanged, and nothing refused is in it."""
    raw = json.dumps(body).encode()
    try:
        decision = World().decide("POST", CREATE, raw)
    except MalformedError:
        return
    if isinstance(decision, Denial):
        assert decision.broken
        return
    assert decision.body is not None
    assert decode(decision.body) == json.loads(decision.body)
    again = World().decide("POST", CREATE, decision.body)
    assert isinstance(again, Forward)
    assert (again.body, again.response_warnings) == (decision.body, ())
    read = CREATE_BODY.read(decode(decision.body), [])
    assert not read.host_config.privileged
    assert not read.host_config.devices
    assert all(request.driver == "cdi" for request in read.host_config.device_requests or ())


@given(st.binary(max_size=80))
def test_parse_is_total_over_bytes(raw: bytes) -> None:
    try:
        CreateRequest.parse(raw, MATCHED)
    except MalformedError:
        return


def test_zero_and_empty_are_told_apart() -> None:
    sent = host_of(World().sent({"Dns": [], "CapDrop": [], "MemorySwappiness": 0, "PidsLimit": None}))
    assert sent == {"Dns": [], "CapDrop": [], "MemorySwappiness": 0}
