"""What keeps a container a container."""

import pytest

from gate.core.capability import DEFAULT_CAPABILITIES
from tests.gate.world import World, allowing, host_of

MASKED = [
    "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
]  # fmt: skip
READONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]

FORWARDED = [
    {"Privileged": False},
    {"CapAdd": sorted(DEFAULT_CAPABILITIES)},
    {"CapAdd": ["cap_chown", "CAP_KILL"]},
    {"CapAdd": "CHOWN"},
    {"CapDrop": ["ALL"]},
    {"SecurityOpt": ["no-new-privileges"]},
    {"SecurityOpt": ["no-new-privileges:true", "no-new-privileges=true"]},
    {"SecurityOpt": []},
    {"MaskedPaths": None, "ReadonlyPaths": None},
    {"MaskedPaths": MASKED, "ReadonlyPaths": READONLY},
    {"MaskedPaths": [*MASKED, "/mine"]},
    {"Runtime": ""},
    {"Runtime": "runc"},
    {"Runtime": "io.containerd.runc.v2"},
    {"Sysctls": {"net.core.somaxconn": "1024", "net.ipv4.ip_unprivileged_port_start": "0"}},
    {"LogConfig": {"Type": "", "Config": {"max-size": "1m"}}},
    {"LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "tag": "x"}}},
    {"LogConfig": {"Type": "local"}},
    {"LogConfig": {"Type": "none"}},
    {"OomScoreAdj": 500, "OomKillDisable": False},
    {"GroupAdd": ["video", "render", "44"]},
    {"Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}]},
    {"Isolation": "default"},
    {"RestartPolicy": {"Name": "always"}, "AutoRemove": False},
    {"ExtraHosts": ["host:host-gateway"], "Dns": ["1.1.1.1"], "Links": ["a:b"]},
    {"PortBindings": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}]}, "PublishAllPorts": True},
    {"Init": True, "ShmSize": 1, "ReadonlyRootfs": True, "MemorySwappiness": -1, "PidsLimit": 5},
]


@pytest.mark.parametrize("host", FORWARDED)
def test_forwarded_as_it_is(host: dict[str, object]) -> None:
    assert World().codes(host) == ()


REFUSED = [
    ({"Privileged": True}, "privileged"),
    ({"pRIVILEGED": True}, "privileged"),
    ({"CapAdd": ["SYS_ADMIN"]}, "capability"),
    ({"CapAdd": "SYS_ADMIN"}, "capability"),
    ({"CapAdd": ["cap_sys_rawio"]}, "capability"),
    ({"CapAdd": ["ALL"]}, "capability"),
    ({"CapAdd": ["all"]}, "capability"),
    ({"CapAdd": ["CAP_ALL"]}, "capability"),
    ({"CapAdd": [None]}, "capability"),
    ({"CapAdd": ["NET_ADMIN"]}, "capability"),
    ({"CapAdd": ["CAP_CAP_CHOWN"]}, "capability"),
    ({"SecurityOpt": ["seccomp=unconfined"]}, "security-option"),
    ({"SecurityOpt": ["apparmor:unconfined"]}, "security-option"),
    ({"SecurityOpt": ["label=disable"]}, "security-option"),
    ({"SecurityOpt": ["disable"]}, "security-option"),
    ({"SecurityOpt": ["writable-cgroups=true"]}, "security-option"),
    ({"SecurityOpt": ["no-new-privileges=false"]}, "security-option"),
    ({"MaskedPaths": []}, "system-paths"),
    ({"MaskedPaths": MASKED[1:]}, "system-paths"),
    ({"ReadonlyPaths": []}, "system-paths"),
    ({"ReadonlyPaths": READONLY[1:]}, "system-paths"),
    ({"Annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=1"}}, "annotation"),
    ({"Annotations": {"mine": "1"}}, "annotation"),
    ({"Runtime": "nvidia"}, "runtime"),
    ({"Runtime": "RUNC"}, "runtime"),
    ({"Runtime": "io.containerd.runsc.v1"}, "runtime"),
    ({"Runtime": "io.containerd.runc.v2 "}, "runtime"),
    ({"CgroupParent": "/x"}, "cgroup-parent"),
    ({"Cgroup": "container:x"}, "cgroup-join"),
    ({"Sysctls": {"kernel.core_pattern": "|/x"}}, "sysctl"),
    ({"Sysctls": {"net.ipv4.ip_forward": "1"}}, "sysctl"),
    ({"StorageOpt": {"size": "1G"}}, "storage-option"),
    ({"LogConfig": {"Type": "fluentd", "Config": {"fluentd-address": "unix:///x"}}}, "log-driver"),
    ({"LogConfig": {"Type": "syslog"}}, "log-driver"),
    ({"LogConfig": {"Type": "json-file", "Config": {"fluentd-address": "x"}}}, "log-driver"),
    ({"LogConfig": {"Type": "none", "Config": {"tag": "x"}}}, "log-driver"),
    ({"OomKillDisable": True}, "oom"),
    ({"OomScoreAdj": -1}, "oom"),
    ({"Isolation": "process"}, "isolation"),
]


@pytest.mark.parametrize(("host", "code"), REFUSED)
def test_refused(host: dict[str, object], code: str) -> None:
    assert World().codes(host) == (code,)


WIDENED = [
    ({"capabilities": ("NET_ADMIN",)}, {"CapAdd": ["cap_net_admin"]}),
    ({"security_options": ("apparmor=unconfined",)}, {"SecurityOpt": ["apparmor:unconfined"]}),
    ({"security_options": ("label=type=x",)}, {"SecurityOpt": ["label:type=x"]}),
    ({"security_options": ("seccomp=unconfined",)}, {"SecurityOpt": ["seccomp=unconfined"]}),
    ({"security_options": ("systempaths=unconfined",)}, {"MaskedPaths": [], "ReadonlyPaths": []}),
    ({"annotations": ("mine",)}, {"Annotations": {"mine": "1"}}),
    ({"runtimes": ("runsc",)}, {"Runtime": "runsc"}),
    ({"cgroup_parent": "/repo"}, {"CgroupParent": "/repo"}),
    ({"sysctls": ("net.ipv4.ip_forward",)}, {"Sysctls": {"net/ipv4/ip_forward": "1"}}),
    ({"log_drivers": ("syslog",)}, {"LogConfig": {"Type": "syslog", "Config": {"tag": "x"}}}),
]


@pytest.mark.parametrize(("policy", "host"), WIDENED)
def test_the_policy_widens(policy: dict[str, object], host: dict[str, object]) -> None:
    assert World().codes(host) != ()
    assert allowing(**policy).codes(host) == ()


def test_no_log_driver_dials_a_host_socket() -> None:
    world = allowing(log_drivers=("syslog",))
    host = {"LogConfig": {"Type": "syslog", "Config": {"syslog-address": "unixgram:///dev/log"}}}
    assert world.codes(host) == ("log-driver",)


def test_widening_one_thing_widens_nothing_else() -> None:
    world = allowing(
        capabilities=("NET_ADMIN",), security_options=("apparmor=unconfined",), runtimes=("runsc",)
    )
    host = {
        "CapAdd": ["SYS_ADMIN"],
        "SecurityOpt": ["seccomp=unconfined"],
        "Runtime": "nvidia",
        "Privileged": True,
    }
    assert world.codes(host) == ("privileged", "capability", "security-option", "runtime")


def test_the_operators_cgroup_parent_is_forced() -> None:
    assert host_of(allowing(cgroup_parent="/repo").sent({}))["CgroupParent"] == "/repo"
    assert "CgroupParent" not in host_of(World().sent({}))


def test_path_lists_of_the_daemon_are_left_to_the_daemon() -> None:
    thermal = "/sys/devices/system/cpu/cpu0/thermal_throttle"
    host = {"MaskedPaths": [*MASKED, "/proc/interrupts", thermal], "ReadonlyPaths": READONLY}
    sent = host_of(World().sent(host))
    assert "MaskedPaths" not in sent
    assert "ReadonlyPaths" not in sent
    assert "MaskedPaths" not in host_of(World().sent({"MaskedPaths": MASKED}))
    assert "ReadonlyPaths" not in host_of(World().sent({"ReadonlyPaths": READONLY}))
    more = host_of(World().sent({"MaskedPaths": [*MASKED, "/mine"]}))
    assert more["MaskedPaths"] == [*MASKED, "/mine"]
