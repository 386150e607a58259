"""Which mounts a repo may have."""

import json
from dataclasses import replace

import pytest

from gate.core.denial import Denial
from gate.core.facts import PathFact, PathType
from gate.core.inspected import parse
from gate.core.policy import PathLookup
from gate.core.repo import RepoPolicy
from gate.core.routes import Matched, match
from tests.gate.world import (
    CREATE,
    FULL_ID,
    GATE_SOCKET,
    World,
    allowing,
    container,
    host_of,
    view,
    volume,
)

DATA = allowing(bind_roots=("/srv/data", "/home"))


def both(source: str, world: World = DATA) -> tuple[str, ...]:
    """The codes of a bind, which must not depend on its spelling."""
    by_binds = world.codes({"Binds": [f"{source}:/x"]})
    assert world.codes({"Mounts": [{"Type": "bind", "Source": source, "Target": "/x"}]}) == by_binds
    return by_binds


@pytest.mark.parametrize(
    "source", ["/srv/data", "/srv/data/a/b", "/srv/data/../data/x", "/home/u", "//home/u/"]
)
def test_below_a_root(source: str) -> None:
    assert both(source) == ()


REFUSED = [
    ("/dev", "bind-device"),
    ("/dev/nvidia0", "bind-device"),
    ("/srv/data/../../dev/dri", "bind-device"),
    ("//dev", "bind-device"),
    ("/", "bind-system"),
    ("/proc", "bind-system"),
    ("/proc/1/root/dev", "bind-system"),
    ("/sys", "bind-system"),
    ("/run", "bind-system"),
    ("/etc/cdi", "bind-system"),
    ("/etc", "bind-system"),
    ("/var/lib/docker", "bind-system"),
    ("/srv/machine/x", "bind-system"),
    ("/srv", "bind-system"),
    ("/var/run/docker.sock", "bind-socket"),
    ("/run/containerd/containerd.sock", "bind-socket"),
    ("/srv/machine/raw/dockerd.sock", "bind-socket"),
    ("/srv/data/docker.sock", "bind-socket"),
    ("/run/rediacc/guid-b/docker.sock", "bind-socket"),
    ("/srv/database", "bind-root"),
    ("/opt", "bind-root"),
    ("/home2", "bind-root"),
]


@pytest.mark.parametrize(("source", "code"), REFUSED)
def test_refused(source: str, code: str) -> None:
    assert both(source) == (code,)


def test_without_roots_nothing_is_bound() -> None:
    assert both("/srv/data", World()) == ("bind-root",)


@pytest.mark.parametrize(
    "source", [GATE_SOCKET, "/var" + GATE_SOCKET, "/run/../run/rediacc/guid-a/docker.sock"]
)
def test_the_gates_own_socket(source: str) -> None:
    assert both(source, World()) == ()


RESOLVED = [
    ("/dev/nvidia0", PathType.DEVICE, "bind-device"),
    ("/proc/1/root", PathType.DIRECTORY, "bind-system"),
    ("/run/docker.sock", PathType.SOCKET, "bind-socket"),
    (GATE_SOCKET, PathType.SOCKET, "bind-socket"),
    ("/opt/x", PathType.DIRECTORY, "bind-root"),
    ("/srv/data/dev0", PathType.DEVICE, "bind-device"),
    ("/srv/data/pipe", PathType.OTHER, "bind-device"),
    ("/srv/data/any.sock", PathType.SOCKET, "bind-socket"),
    ("/srv/data/real", PathType.DIRECTORY, None),
    ("/srv/data/new", PathType.MISSING, None),
    ("/srv/data/file", PathType.FILE, None),
]


@pytest.mark.parametrize(("real", "type_", "code"), RESOLVED)
def test_a_link_is_followed_and_judged_again(real: str, type_: PathType, code: str | None) -> None:
    world = replace(DATA, paths={"/srv/data/link": PathFact(realpath=real, type_=type_)})
    assert both("/srv/data/link", world) == (() if code is None else (code,))


def test_a_root_may_itself_be_a_link() -> None:
    paths = {
        "/srv/data": PathFact(realpath="/mnt/disk", type_=PathType.DIRECTORY),
        "/srv/data/x": PathFact(realpath="/mnt/disk/x", type_=PathType.DIRECTORY),
        "/srv/data/y": PathFact(realpath="/mnt/other", type_=PathType.DIRECTORY),
    }
    world = replace(DATA, paths=paths, view=view("/mnt/disk"))
    assert both("/srv/data/x", world) == ()
    assert both("/srv/data/y", world) == ("bind-root",)


def test_unresolved_paths_are_refused() -> None:
    assert both("/srv/data", replace(DATA, silent=True)) == ("lookup-failed",)


@pytest.mark.parametrize(
    ("existing", "code"),
    [
        (volume(), None),
        (volume(options={"size": "1G"}), None),
        (volume(options={"type": "none", "o": "bind", "device": "/dev"}), "volume-option"),
        (volume(driver="nfs"), "volume-driver"),
    ],
)
def test_named_volumes_are_looked_at(existing: object, code: str | None) -> None:
    world = World(volumes={"v": existing})  # type: ignore[dict-item]
    expected = () if code is None else (code,)
    assert set(world.codes({"Binds": ["v:/x"]})) == set(expected)
    assert set(world.codes({"Mounts": [{"Type": "volume", "Source": "v", "Target": "/x"}]})) == set(expected)


def test_a_volume_that_does_not_exist_yet_is_made_by_the_daemon() -> None:
    assert World().codes({"Binds": ["new:/x"]}) == ()
    assert World(silent=True).codes({"Binds": ["new:/x"]}) == ("lookup-failed",)


BIND = {"Type": "bind", "Source": "/srv/data/x", "Destination": "/x", "RW": True}


@pytest.mark.parametrize(
    ("mount", "code"),
    [
        (BIND, None),
        ({"Type": "bind", "Source": "/dev", "Destination": "/x"}, "volumes-from"),
        ({"Type": "volume", "Name": "v", "Driver": "local", "Source": "/var/lib/docker/volumes/v"}, None),
        ({"Type": "volume", "Name": "evil", "Driver": "local"}, "volumes-from"),
        ({"Type": "volume", "Name": "v", "Driver": "nfs"}, "volumes-from"),
        ({"Type": "tmpfs", "Destination": "/x"}, None),
        ({"Type": "cluster", "Destination": "/x"}, "volumes-from"),
    ],
)
def test_volumes_from(mount: dict[str, object], code: str | None) -> None:
    volumes = {"evil": volume("evil", options={"device": "/dev/sda"})}
    world = replace(DATA, containers={"c": container(None, mount)}, volumes=volumes)
    assert world.codes({"VolumesFrom": ["c:ro"]}) == (() if code is None else (code,))


@pytest.mark.parametrize(
    ("spelled", "code"), [("nope", "object-unknown"), (":ro", "volumes-from"), ("c:x", "volumes-from")]
)
def test_volumes_from_unreadable(spelled: str, code: str) -> None:
    assert replace(DATA, containers={"c": container()}).codes({"VolumesFrom": [spelled]}) == (code,)


def test_volumes_from_is_sent_by_full_id() -> None:
    world = replace(DATA, containers={"c": container(None, BIND)})
    assert host_of(world.sent({"VolumesFrom": ["c:ro"]}))["VolumesFrom"] == [f"{FULL_ID}:ro"]


MKNOD = [
    ({"Binds": ["/srv/data:/x"]}, True),
    ({"Binds": ["/srv/data:/x:ro"]}, False),
    ({"Mounts": [{"Type": "bind", "Source": "/srv/data", "Target": "/x"}]}, True),
    ({"Mounts": [{"Type": "bind", "Source": "/srv/data", "Target": "/x", "ReadOnly": True}]}, False),
    ({"VolumesFrom": ["c"]}, True),
    ({"Binds": ["vol:/x"]}, False),
    ({"Binds": [f"{GATE_SOCKET}:/x"]}, False),
    ({}, False),
]


@pytest.mark.parametrize(("host", "dropped"), MKNOD)
def test_no_device_nodes_in_a_writable_bind(host: dict[str, object], dropped: bool) -> None:
    world = replace(DATA, containers={"c": container(None, BIND)})
    sent = host_of(world.sent(host))
    assert sent.get("CapDrop") == (["MKNOD"] if dropped else None)
    kept = host_of(allowing(world, bind_roots=("/srv/data",), capabilities=("MKNOD",)).sent(host))
    assert "CapDrop" not in kept


@pytest.mark.parametrize(
    ("add", "drop", "sent_add", "sent_drop"),
    [
        (["MKNOD", "CHOWN"], [], ["CHOWN"], ["MKNOD"]),
        (["cap_mknod"], ["ALL"], [], ["ALL"]),
        (None, ["NET_RAW"], None, ["NET_RAW", "MKNOD"]),
        (None, ["CAP_MKNOD"], None, ["CAP_MKNOD"]),
    ],
)
def test_an_added_mknod_would_win_over_the_drop(
    add: object, drop: object, sent_add: object, sent_drop: object
) -> None:
    sent = host_of(DATA.sent({"Binds": ["/srv/data:/x"], "CapAdd": add, "CapDrop": drop}))
    assert (sent.get("CapAdd"), sent.get("CapDrop")) == (sent_add, sent_drop)


def test_remedies_name_what_can_be_used() -> None:
    outside = DATA.create({"Binds": ["/opt:/x"]})
    assert isinstance(outside, Denial)
    assert "/srv/data" in outside.message()
    assert "repos/gpu-a.yaml" in outside.message()
    socket = DATA.create({"Binds": ["/var/run/docker.sock:/x"]})
    assert isinstance(socket, Denial)
    assert GATE_SOCKET in socket.message()
    assert DATA.context.repo.policy == RepoPolicy(bind_roots=("/srv/data", "/home"))


def test_what_cannot_be_read_is_refused() -> None:
    assert DATA.codes({"Binds": ["rel"]}) == ("mount-malformed",)


@pytest.mark.parametrize(
    ("mount", "dropped"),
    [
        (None, False),
        ({**BIND, "RW": False}, False),
        ({**BIND, "Source": GATE_SOCKET}, False),
        ({"Type": "volume", "Name": "v", "Driver": "local", "RW": True}, False),
        (BIND, True),
    ],
)
def test_device_nodes_by_volumes_from(mount: dict[str, object] | None, dropped: bool) -> None:
    world = replace(DATA, containers={"c": container(None, *([mount] if mount else []))})
    assert host_of(world.sent({"VolumesFrom": ["c"]})).get("CapDrop") == (["MKNOD"] if dropped else None)


@pytest.mark.parametrize(("ref", "code"), [("c", "lookup-failed"), ("a/b", "object-unknown")])
def test_unanswered_and_impossible_containers(ref: str, code: str) -> None:
    decision = World(silent=True).create({"VolumesFrom": [ref]})
    assert isinstance(decision, Denial)
    assert decision.codes() == (code,)
    assert ("no such container" in decision.message()) == (code == "object-unknown")


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ({"Binds": ["/dev:/x", "/opt:/y", f"{GATE_SOCKET}:/z"]}, set()),
        ({"Binds": ["/srv/data/a:/x"]}, {"/srv/data/a", "/srv/data", "/home"}),
    ],
)
def test_paths_that_are_refused_by_their_text_are_not_looked_at(
    host: dict[str, object], asked: set[str]
) -> None:
    """Else a client could ask the gate which files of the host exist."""
    matched = match("POST", CREATE)
    assert isinstance(matched, Matched)
    request = parse(json.dumps({"Image": "x", "HostConfig": host}).encode(), matched)
    assert {
        lookup.path for lookup in request.lookups(DATA.context, {}) if isinstance(lookup, PathLookup)
    } == asked


def external(world: World) -> World:
    """The same before a daemon that is not ours to run."""
    repo = replace(world.context.repo, upstream="/run/d.sock")
    return replace(world, context=replace(world.context, repo=repo))


LINKED = replace(DATA, paths={"/srv/data/now": PathFact(realpath="/srv/data/r1", type_=PathType.DIRECTORY)})
HOST = {
    "Binds": ["/srv/data/now:/x:ro", "vol:/v", f"{GATE_SOCKET}:/s.sock"],
    "Mounts": [{"Type": "bind", "Source": "/srv/data/now", "Target": "/y"}],
}


def test_a_managed_daemon_is_told_where_links_lead() -> None:
    sent = host_of(LINKED.sent(HOST))
    assert sent["Binds"] == ["/srv/data/r1:/x:ro", "vol:/v", f"{GATE_SOCKET}:/s.sock"]
    assert [mount["Source"] for mount in sent["Mounts"]] == ["/srv/data/r1"]


def test_another_daemon_is_told_what_the_client_wrote() -> None:
    sent = host_of(external(LINKED).sent(HOST))
    assert sent["Binds"] == HOST["Binds"]
    assert [mount["Source"] for mount in sent["Mounts"]] == ["/srv/data/now"]


@pytest.mark.parametrize(
    "real",
    ["/srv/data/a:b", "/srv/data/a\nb", "/srv/data/\udcff"],
    ids=["colon", "line break", "no UTF-8"],
)
def test_a_resolved_path_that_cannot_be_told_is_refused(real: str) -> None:
    paths = {"/srv/data/x": PathFact(realpath=real, type_=PathType.DIRECTORY)}
    assert both("/srv/data/x", replace(DATA, paths=paths)) == ("mount-malformed",)
    assert both("/srv/data/x", external(replace(DATA, paths=paths))) == ()


def test_where_links_would_be_followed_nothing_is_bound() -> None:
    for unsafe in (view(), view("/srv/data/b"), view("/srv/dat")):
        assert both("/srv/data/a", replace(DATA, view=unsafe)) == ("bind-unconfined",)
        assert both("/srv/data/a", external(replace(DATA, view=unsafe))) == ()
        assert start(replace(DATA, view=unsafe), "/srv/data/a") == ("bind-unconfined",)


def test_a_view_that_is_not_known_refuses() -> None:
    matched = match("POST", CREATE)
    assert isinstance(matched, Matched)
    request = parse(json.dumps({"Image": "x", "HostConfig": {"Binds": ["/srv/data:/x"]}}).encode(), matched)
    facts = {
        PathLookup(path): PathFact(realpath=path, type_=PathType.DIRECTORY) for path in ("/srv/data", "/home")
    }
    decision = request.decide(DATA.context, facts)
    assert isinstance(decision, Denial)
    assert decision.codes() == ("lookup-failed",)


def start(world: World, source: str) -> tuple[str, ...]:
    """The codes of a start of a container that has this bind."""
    one = container(None, {"Type": "bind", "Source": source, "Destination": "/x"})
    decision = replace(world, containers={"c": one}).decide("POST", b"/v1.51/containers/c/start")
    return decision.codes() if isinstance(decision, Denial) else ()


def test_a_container_whose_source_became_a_link_does_not_start() -> None:
    assert start(LINKED, "/srv/data/now") == ("bind-link",)
    assert start(LINKED, "/srv/data/r1") == ()
    assert start(external(LINKED), "/srv/data/now") == ()


def test_a_container_below_a_root_that_is_a_link_starts_again() -> None:
    paths = {"/srv/data": PathFact(realpath="/mnt/disk", type_=PathType.DIRECTORY)}
    world = replace(DATA, paths=paths, view=view("/mnt/disk"))
    assert start(world, "/mnt/disk/x") == ()
    assert start(external(world), "/mnt/disk/x") == ("bind-root",)
    assert start(world, "/mnt/disks/x") == ("bind-root",)
    assert start(world, "/run/x") == ("bind-system",)
