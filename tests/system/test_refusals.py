"""Every refused form, by the real CLI or raw HTTP: 403, the way forward, and the daemon never hears of it."""

import json
from pathlib import Path

import pytest

from tests.engine import IMAGE, request
from tests.system.conftest import REPO, Gated

RUN = ("run", "--rm", "--network", "none")


def compose_file(service: dict[str, object], **top: object) -> str:
    return json.dumps({"services": {"s": {"image": IMAGE, "network_mode": "none", **service}}, **top})


CLI_FORMS = {
    "gpus all": (("--gpus", "all"), "gpus-flag", "--device nvidia.com/gpu="),
    "gpus by index": (("--gpus", "device=0"), "gpus-flag", "--device nvidia.com/gpu="),
    "gpus by driver": (("--gpus", "driver=nvidia,count=1"), "device-driver", "--device nvidia.com/gpu="),
    "runtime nvidia": (("--runtime", "nvidia"), "runtime", "--device"),
    "runtime by shim": (("--runtime", "io.containerd.runsc.v1"), "runtime", "--device"),
    "raw node": (("--device", "/dev/null"), "raw-device", "rediacc.io/dri="),
    "raw node elsewhere": (("--device", "/dev/zero:/dev/nvidia0"), "raw-device", "rediacc.io/amd="),
    "CDI with target": (("--device", "nvidia.com/gpu=0:/dev/x"), "cdi-target", "--device nvidia.com/gpu=0"),
    "cgroup rule": (("--device-cgroup-rule", "c 195:* rwm"), "device-cgroup-rule", "CDI grant"),
    "bind of /dev": (("-v", "/dev:/host-dev"), "bind-device", "rediacc.io/dri="),
    "bind under /dev": (("-v", "/dev/dri:/dev/dri"), "bind-device", "rediacc.io/dri="),
    "bind above /dev": (("-v", "/:/host"), "bind-system", "bind roots"),
    "mount of /dev": (("--mount", "type=bind,src=/dev,dst=/d"), "bind-device", "rediacc.io/dri="),
    "bind by detour": (("-v", "/tmp/../dev:/d"), "bind-device", "rediacc.io/dri="),
    "bind outside roots": (("-v", "/srv:/srv"), "bind-root", "bind_roots"),
    "docker socket": (("-v", "/var/run/docker.sock:/s"), "bind-", ""),
    "privileged": (("--privileged",), "privileged", ""),
    "capability": (("--cap-add", "SYS_ADMIN"), "capability", "capabilities"),
    "all capabilities": (("--cap-add", "ALL"), "capability", "capabilities"),
    "pid namespace": (("--pid", "host"), "pid-mode", "namespaces"),
    "ipc namespace": (("--ipc", "host"), "ipc-mode", "namespaces"),
    "uts namespace": (("--uts", "host"), "uts-mode", "namespaces"),
    "user namespace": (("--userns", "host"), "userns-mode", "namespaces"),
    "cgroup namespace": (("--cgroupns", "host"), "cgroupns-mode", "namespaces"),
    "network namespace": (("--network", "host"), "network-mode", "network_host"),
    "seccomp": (("--security-opt", "seccomp=unconfined"), "security-option", "security_options"),
    "apparmor": (("--security-opt", "apparmor=unconfined"), "security-option", "security_options"),
    "system paths": (("--security-opt", "systempaths=unconfined"), "system-paths", "security_options"),
    "annotation": (("--annotation", "run.oci.handler=krun"), "annotation", "labels"),
    "cgroup parent": (("--cgroup-parent", "/other"), "cgroup-parent", "cgroup parent"),
    "volume of a bind": (
        ("--mount", "type=volume,dst=/d,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/dev"),
        "volume-option", "bind",
    ),
    "volume driver": (("--mount", "type=volume,dst=/d,volume-driver=other"), "volume-driver", "local driver"),
    "ungranted device": (
        ("--device", "nvidia.com/gpu=1"), "grant-missing",
        f"rdc repo gpu grant {REPO} --device nvidia.com/gpu=1",
    ),
    "unknown device": (("--device", "other.com/thing=0"), "grant-missing", f"rdc repo gpu grant {REPO}"),
    "two refusals": (("--gpus", "all", "--privileged"), "privileged", "gpus-flag"),
}  # fmt: skip


@pytest.mark.parametrize("name", CLI_FORMS)
def test_the_cli_shows_why_and_what_to_do(each_gated: Gated, name: str) -> None:
    options, code, way_forward = CLI_FORMS[name]
    since = each_gated.log_size()
    done = each_gated.gate.run(*RUN, *options, IMAGE, "true")
    assert done.returncode == 125, done.stdout + done.stderr
    assert code in done.stderr
    assert way_forward in done.stderr
    heard = [call for call in each_gated.api_calls(since) if "/containers/create" in call]
    assert heard == []


def test_the_daemons_log_would_tell(each_gated: Gated) -> None:
    """Else "the daemon never heard of it" would prove nothing."""
    since = each_gated.log_size()
    each_gated.gate.ok("create", "--network", "none", IMAGE, "true")
    heard = each_gated.api_calls(since)
    assert any("/containers/create" in call for call in heard), heard


COMPOSE_FORMS = {
    "gpus": ({"gpus": "all"}, {}, "gpus-flag", "devices: [nvidia.com/gpu="),
    "deploy": (
        {"deploy": {"resources": {"reservations": {"devices": [
            {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]}}}},
        {}, "device-driver", "devices: [nvidia.com/gpu=",
    ),
    "deploy with cdi": (
        {"deploy": {"resources": {"reservations": {"devices": [
            {"driver": "cdi", "device_ids": ["nvidia.com/gpu=1"], "capabilities": ["gpu"]}]}}}},
        {}, "deploy-devices", "devices: [nvidia.com/gpu=",
    ),
    "runtime": ({"runtime": "nvidia"}, {}, "runtime", "devices:"),
    "raw device": ({"devices": ["/dev/null:/dev/x"]}, {}, "raw-device", "rediacc.io/dri="),
    "cgroup rule": ({"device_cgroup_rules": ["c 195:* rwm"]}, {}, "device-cgroup-rule", "CDI"),
    "bind": ({"volumes": ["/dev:/d"]}, {}, "bind-device", "rediacc.io/dri="),
    "privileged": ({"privileged": True}, {}, "privileged", ""),
    "volume": (
        {"volumes": ["vol:/d"]},
        {"volumes": {"vol": {"driver_opts": {"type": "none", "o": "bind", "device": "/dev"}}}},
        "volume-option", "bind",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSE_FORMS)
def test_compose_shows_why_and_what_to_do(each_gated: Gated, tmp_path: Path, name: str) -> None:
    service, top, code, way_forward = COMPOSE_FORMS[name]
    file = tmp_path / "compose.yaml"
    file.write_text(compose_file(service, **top))
    since = each_gated.log_size()
    done = each_gated.gate.run("compose", "-p", "refused", "-f", str(file), "up", "-d")
    each_gated.gate.run("compose", "-p", "refused", "-f", str(file), "down")
    assert done.returncode != 0
    assert code in done.stderr
    assert way_forward in done.stderr
    assert not [
        call
        for call in each_gated.api_calls(since)
        if call.endswith("/create") and "POST" in call and "network" not in call
    ]


def test_plugins_swarm_checkpoints_and_the_unknown(each_gated: Gated) -> None:
    for method, target in (
        ("GET", "/v1.44/plugins"), ("POST", "/v1.44/plugins/pull?remote=x"), ("POST", "/v1.44/swarm/init"),
        ("POST", "/v1.44/services/create"), ("GET", "/v1.44/nodes"), ("GET", "/v1.44/secrets"),
        ("POST", "/v1.44/configs/create"), ("POST", "/v1.44/containers/x/checkpoints"),
        ("POST", "/v1.44/containers/x/start?checkpoint=c"), ("GET", "/v1.44/nothing"), ("GET", "/debug/vars"),
        ("OPTIONS", "/v1.44/containers/json"), ("POST", "/v1.44/images/create?fromSrc=http://x/y"),
    ):  # fmt: skip
        since = each_gated.log_size()
        answer = request(each_gated.socket, method, target)
        assert answer.status == 403, (method, target)
        assert "[" in answer.message
        assert each_gated.api_calls(since) == []
    for arguments in (("swarm", "init"), ("plugin", "ls"), ("service", "ls")):
        done = each_gated.gate.run(*arguments)
        assert done.returncode == 1
        assert "[" in done.stderr


def test_privileged_exec_and_widening_updates(each_gated: Gated) -> None:
    each_gated.raw.ok("run", "-d", "--name", "victim", "--network", "none", IMAGE, "sleep", "60")
    try:
        done = each_gated.gate.run("exec", "--privileged", "victim", "true")
        assert done.returncode == 1
        assert "privileged-exec" in done.stderr
        for body in (
            {"Devices": [{"PathOnHost": "/dev/zero"}]}, {"DeviceCgroupRules": ["c 1:* rwm"]},
            {"deviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]},
            {"CgroupParent": "/x"},
        ):  # fmt: skip
            assert request(each_gated.socket, "POST", "/v1.44/containers/victim/update", body).status == 403
        each_gated.gate.ok("update", "--memory", "64m", "--memory-swap", "64m", "--restart", "no", "victim")
    finally:
        each_gated.raw.ok("rm", "-f", "victim")


def test_what_was_made_before_the_gate_does_not_come_in_through_it(each_gated: Gated) -> None:
    """volumes-from, named volumes with options, and starting containers that hold what would be refused."""
    raw, gate = each_gated.raw, each_gated.gate
    raw.ok("create", "--name", "withbind", "--network", "none", "-v", "/dev:/d", IMAGE, "true")
    raw.ok("create", "--name", "privileged", "--network", "none", "--privileged", IMAGE, "true")
    raw.ok("create", "--name", "rawdevice", "--network", "none", "--device", "/dev/zero", IMAGE, "true")
    raw.ok(
        "create", "--name", "otherdevice", "--network", "none", "--device", "nvidia.com/gpu=1", IMAGE, "true"
    )
    raw.ok("volume", "create", "-o", "type=none", "-o", "o=bind", "-o", "device=/dev", "devvolume")
    try:
        for arguments in (
            (*RUN, "--volumes-from", "withbind", IMAGE, "true"), (*RUN, "-v", "devvolume:/d", IMAGE, "true"),
            (*RUN, "--mount", "type=volume,src=devvolume,dst=/d", IMAGE, "true"),
            ("start", "withbind"), ("start", "privileged"), ("start", "rawdevice"), ("restart", "rawdevice"),
            ("start", "otherdevice"),
        ):  # fmt: skip
            done = gate.run(*arguments)
            assert done.returncode in {1, 125}, (arguments, done.stdout)
            assert "[" in done.stderr, (arguments, done.stderr)
        states = raw.ok("ps", "-a", "--format", "{{.Names}} {{.State}}").split("\n")
        assert {line.split()[1] for line in states if line} == {"created"}
    finally:
        raw.run("rm", "-f", "withbind", "privileged", "rawdevice", "otherdevice")
        raw.run("volume", "rm", "devvolume")


def test_groups_pass_and_give_nothing(each_gated: Gated) -> None:
    done = each_gated.gate.run(
        *RUN, "--group-add", "44", IMAGE, "sh", "-c", "ls /dev | grep -c nvidia; id -G"
    )
    assert done.stdout.splitlines()[0] == "0"
    assert "44" in done.stdout.splitlines()[1].split()
