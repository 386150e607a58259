"""Start, restart, unpause, attach, exec and copies into one: judged by what the container is now."""

import json
from dataclasses import replace

import pytest

from base.errors import MalformedError
from gate.core.denial import Denial
from gate.core.facts import ContainerFact, ExecFact, PathFact, PathType
from gate.core.policy import Forward
from gate.core.repo import Namespace
from tests.gate.world import (
    FULL_ID,
    GPU0,
    World,
    allowing,
    body_of,
    cdi,
    container,
    granting,
    volume,
)

ACTS = ["start", "restart", "unpause"]
HOLDER = {"DeviceRequests": [cdi("nvidia.com/gpu=0")]}


def act(world: World, name: str = "start", query: bytes = b"") -> Forward | Denial:
    return world.decide("POST", b"/v1.51/containers/web/" + name.encode() + query, b"")


def having(fact: ContainerFact, world: World | None = None) -> World:
    return replace(world or World(), containers={"web": fact})


@pytest.mark.parametrize("name", ACTS)
def test_a_holder_runs_while_its_grant_lives(name: str) -> None:
    world = having(container(HOLDER))
    forwarded = act(world, name)
    assert isinstance(forwarded, Forward)
    assert forwarded.target == f"/v1.51/containers/{FULL_ID}/{name}".encode()
    assert (forwarded.body, forwarded.content_type) == (None, None)
    assert (forwarded.devices, forwarded.container) == ((GPU0,), FULL_ID)
    revoked = act(having(container(HOLDER), granting()), name)
    assert isinstance(revoked, Denial)
    assert revoked.codes() == ("grant-missing",)


def test_query_stays() -> None:
    forwarded = act(having(container()), "restart", b"?t=5&signal=INT")
    assert isinstance(forwarded, Forward)
    assert forwarded.target == f"/v1.51/containers/{FULL_ID}/restart?t=5&signal=INT".encode()


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize(
    ("host", "code"),
    [
        ({"Privileged": True}, "privileged"),
        ({"Devices": [{"PathOnHost": "/dev/sda"}]}, "raw-device"),
        ({"DeviceCgroupRules": ["c 1:* rwm"]}, "device-cgroup-rule"),
        ({"DeviceRequests": [{"Driver": "nvidia", "Count": -1}]}, "device-driver"),
        ({"Runtime": "nvidia"}, "runtime"),
        ({"CapAdd": ["SYS_ADMIN"]}, "capability"),
        ({"Annotations": {"run.oci.handler": "krun"}}, "annotation"),
        ({"NetworkMode": "host"}, "network-mode"),
        ({"PidMode": "host"}, "pid-mode"),
        ({"IpcMode": "host"}, "ipc-mode"),
    ],
)
def test_what_was_made_before_the_gate_does_not_start(name: str, host: dict[str, object], code: str) -> None:
    denied = act(having(container(host)), name)
    assert isinstance(denied, Denial)
    assert denied.codes() == (code,)


def test_what_inspect_shows_of_a_plain_container_starts() -> None:
    host = {
        "Runtime": "runc", "NetworkMode": "bridge", "IpcMode": "private", "CgroupnsMode": "host",
        "MaskedPaths": ["/proc/asound"], "ReadonlyPaths": ["/proc/bus"], "ShmSize": 67108864, "Devices": [],
        "LogConfig": {"Type": "json-file", "Config": {}}, "CapDrop": ["MKNOD"], "ConsoleSize": [0, 0],
        "SecurityOpt": ["label=disable"],
    }  # fmt: skip
    assert isinstance(act(having(container(host))), Forward)


@pytest.mark.parametrize(
    ("mount", "code"),
    [
        ({"Type": "bind", "Source": "/srv/data/x", "RW": True}, None),
        ({"Type": "bind", "Source": "/srv/data/swapped", "RW": True}, "bind-device"),
        ({"Type": "bind", "Source": "/dev"}, "bind-device"),
        ({"Type": "bind", "Source": "/opt"}, "bind-root"),
        ({"Type": "volume", "Name": "v", "Driver": "local"}, None),
        ({"Type": "volume", "Name": "evil", "Driver": "local"}, "volume-option"),
        ({"Type": "npipe"}, "mount-type"),
    ],
)
def test_mounts_are_judged_at_every_start(mount: dict[str, object], code: str | None) -> None:
    world = replace(
        allowing(bind_roots=("/srv/data",)),
        paths={"/srv/data/swapped": PathFact(realpath="/dev/nvidia0", type_=PathType.DEVICE)},
        volumes={"evil": volume("evil", options={"o": "bind"})},
    )
    decision = act(having(container(None, mount), world))
    assert (decision.codes() if isinstance(decision, Denial) else None) == ((code,) if code else None)


OTHER_ID = "e" * 64


@pytest.mark.parametrize(
    ("ours", "theirs", "code"),
    [
        ("NetworkMode", {"NetworkMode": "host"}, "network-mode"),
        ("IpcMode", {"IpcMode": "host"}, "ipc-mode"),
        ("PidMode", {"DeviceRequests": [cdi("nvidia.com/gpu=9")]}, "grant-missing"),
    ],
)
def test_what_a_container_joined_is_judged_again(ours: str, theirs: dict[str, object], code: str) -> None:
    """The one that it joined was made before the gate, or has lost its grant since."""
    joining = container({ours: f"container:{OTHER_ID}"})
    world = allowing(namespaces=(Namespace.PID_CONTAINER,))
    allowed = having(joining, world)
    with_other = replace(allowed, containers={"web": joining, OTHER_ID: container(theirs, id_=OTHER_ID)})
    refused = act(with_other)
    assert isinstance(refused, Denial)
    assert refused.codes() == (code,)
    plain = replace(allowed, containers={"web": joining, OTHER_ID: container(id_=OTHER_ID)})
    assert isinstance(act(plain), Forward)


def test_what_a_container_joined_may_have_been_removed() -> None:
    """Its namespaces live on in who joined them: an exec there gives nothing new."""
    world = having(container({"NetworkMode": f"container:{OTHER_ID}"}))
    assert isinstance(run_exec(world, {"Cmd": ["true"]}), Forward)


def test_processes_that_may_no_longer_be_joined() -> None:
    refused = act(having(container({"PidMode": f"container:{OTHER_ID}"})))
    assert isinstance(refused, Denial)
    assert refused.codes() == ("pid-mode",)


def test_an_unknown_container_is_never_asked_for_by_name() -> None:
    """Another one could be renamed to it between the gate's question and the daemon's answer."""
    unknown = act(World())
    assert isinstance(unknown, Denial)
    assert (unknown.status, unknown.codes()) == (404, ("object-unknown",))
    unanswered = act(World(silent=True))
    assert isinstance(unanswered, Denial)
    assert (unanswered.status, unanswered.codes()) == (403, ("lookup-failed",))


def reach(world: World, how: str) -> Forward | Denial:
    method, target = REACHES[how]
    return world.decide(method, target)


REACHES = {
    "attach": ("POST", b"/v1.51/containers/web/attach?stdin=1&stream=1"),
    "attach_ws": ("GET", b"/v1.51/containers/web/attach/ws?stdin=1&stream=1"),
    "archive": ("PUT", b"/v1.51/containers/web/archive?path=%2Fw"),
}


@pytest.mark.parametrize("how", REACHES)
def test_what_reaches_into_a_container_is_judged_as_its_start_is(how: str) -> None:
    forwarded = reach(having(container(HOLDER)), how)
    assert isinstance(forwarded, Forward)
    method, target = REACHES[how]
    assert forwarded.target == target.replace(b"web", FULL_ID.encode())
    assert (forwarded.body, forwarded.container, forwarded.devices) == (None, FULL_ID, (GPU0,))
    assert (forwarded.archive, forwarded.content_type) == (
        (True, b"application/x-tar") if method == "PUT" else (False, None)
    )
    for world, status, code in (
        (having(container(HOLDER), granting()), 403, "grant-missing"),
        (having(container({"Privileged": True})), 403, "privileged"),
        (having(container({"PidMode": "host"})), 403, "pid-mode"),
        (World(), 404, "object-unknown"),
        (World(silent=True), 403, "lookup-failed"),
    ):
        denied = reach(world, how)
        assert isinstance(denied, Denial)
        assert (denied.status, denied.codes()) == (status, (code,))


EXEC_ID = "e" * 64


def start_exec(world: World, raw: bytes = b"{}") -> Forward | Denial:
    return world.decide("POST", b"/v1.51/exec/abc/start", raw)


def executing(fact: ContainerFact | None, world: World | None = None) -> World:
    base = world or World()
    execs = {"abc": ExecFact(id=EXEC_ID, container=FULL_ID)}
    return replace(base, containers={} if fact is None else {FULL_ID: fact}, execs=execs)


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        (b"", {}),
        (b"{}", {}),
        (b'{"Detach":false,"Tty":true,"ConsoleSize":[24,80]}', {"Tty": True, "ConsoleSize": [24, 80]}),
        (b'{"detach":true,"Privileged":true,"Cmd":["x"]}', {"Detach": True}),
    ],
)
def test_exec_start_is_rebuilt(raw: bytes, sent: dict[str, object]) -> None:
    forwarded = start_exec(executing(container(HOLDER)), raw)
    assert isinstance(forwarded, Forward)
    assert forwarded.target == f"/v1.51/exec/{EXEC_ID}/start".encode()
    assert body_of(forwarded) == sent
    assert (forwarded.container, forwarded.devices) == (FULL_ID, (GPU0,))


def test_exec_start_is_judged_by_the_container_of_that_moment() -> None:
    for world, status, code in (
        (executing(container(HOLDER), granting()), 403, "grant-missing"),
        (executing(container({"Privileged": True})), 403, "privileged"),
        (executing(None), 404, "object-unknown"),
        (World(silent=True), 403, "lookup-failed"),
    ):
        denied = start_exec(world)
        assert isinstance(denied, Denial)
        assert (denied.status, denied.codes()) == (status, (code,))


def test_an_unknown_exec_is_the_daemons_to_report() -> None:
    forwarded = start_exec(World())
    assert isinstance(forwarded, Forward)
    assert (forwarded.target, forwarded.container) == (b"/v1.51/exec/abc/start", None)


@pytest.mark.parametrize("raw", [b"[]", b'{"Tty":1}', b'{"Detach":true,"detach":false}', b"{}{}"])
def test_exec_start_unreadable(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        start_exec(executing(container()), raw)


def run_exec(world: World, body: dict[str, object]) -> Forward | Denial:
    return world.decide("POST", b"/containers/web/exec", json.dumps(body).encode())


def test_exec_is_rebuilt() -> None:
    body = {
        "User": "0", "Tty": True, "ConsoleSize": [24, 80], "AttachStdin": True, "AttachStderr": True,
        "AttachStdout": True, "Detach": True, "DetachKeys": "ctrl-a", "Env": ["A=b"], "WorkingDir": "/",
        "Cmd": ["id"],
    }  # fmt: skip
    forwarded = run_exec(having(container()), {**body, "Foo": 1})
    assert isinstance(forwarded, Forward)
    assert forwarded.target == f"/containers/{FULL_ID}/exec".encode()
    assert body_of(forwarded) == body


@pytest.mark.parametrize("key", ["Privileged", "privileged", "PRIVILEGED"])
def test_exec_privileged(key: str) -> None:
    for world in (having(container()), World(), World(silent=True)):
        denied = run_exec(world, {"Cmd": ["id"], key: True})
        assert isinstance(denied, Denial)
        assert denied.codes() == ("privileged-exec",)


def test_exec_in_a_holder_whose_grant_is_gone() -> None:
    assert isinstance(run_exec(having(container(HOLDER)), {"Cmd": ["id"]}), Forward)
    denied = run_exec(having(container(HOLDER), granting()), {"Cmd": ["id"], "Privileged": True})
    assert isinstance(denied, Denial)
    assert denied.codes() == ("privileged-exec", "grant-missing")


def test_exec_in_an_unknown_container() -> None:
    for world, status, code in (
        (World(), 404, "object-unknown"),
        (World(silent=True), 403, "lookup-failed"),
    ):
        denied = run_exec(world, {"Cmd": ["id"]})
        assert isinstance(denied, Denial)
        assert (denied.status, denied.codes()) == (status, (code,))
    privileged = run_exec(World(), {"Cmd": ["id"], "Privileged": True})
    assert isinstance(privileged, Denial)
    assert (privileged.status, privileged.codes()) == (403, ("privileged-exec",))


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'{"Cmd":"id"}', b'{"Tty":"true"}', b'{"User":"a","u\xc5\xbfer":"0"}']
)
def test_exec_unreadable(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        World().decide("POST", b"/containers/web/exec", raw)
