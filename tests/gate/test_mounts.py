"""One reading of every spelling of a mount."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core.kinds import MAX_ITEMS
from gate.core.model import HOST_CONFIG, Config, HostConfig
from gate.core.mounts import MountPlan, read_mounts


def plan(host: dict[str, object]) -> MountPlan:
    return read_mounts(HOST_CONFIG.read(host, []), Config())  # type: ignore[arg-type]


def codes(found: MountPlan) -> list[str]:
    return [fault.rule.value for fault in found.faults]


BINDS = [
    ("/a:/b", ("/a", "/b", True, ""), "/a:/b"),
    ("/a:/b:ro", ("/a", "/b", False, ""), "/a:/b:ro"),
    ("/a:/b:rw,Z,rprivate,cached", ("/a", "/b", True, "rprivate"), "/a:/b:rw,Z,rprivate,cached"),
    ("/a/../dev/./x//:/b/", ("/dev/x", "/b", True, ""), "/dev/x:/b"),
    ("//dev:/b", ("/dev", "/b", True, ""), "/dev:/b"),
    ("/../../proc:/b", ("/proc", "/b", True, ""), "/proc:/b"),
]


@pytest.mark.parametrize(("spelled", "bind", "canonical"), BINDS)
def test_binds(spelled: str, bind: tuple[str, str, bool, str], canonical: str) -> None:
    found = plan({"Binds": [spelled]})
    assert codes(found) == []
    assert [(one.source, one.target, one.writable, one.propagation) for one in found.binds] == [bind]
    assert found.host_config.binds == (canonical,)


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("vol:/b", "vol"), ("vol:/b:ro,nocopy", "vol"), ("a.b_c-1:/b", "a.b_c-1")],
)
def test_volumes(spelled: str, name: str) -> None:
    found = plan({"Binds": [spelled]})
    assert codes(found) == []
    assert [one.name for one in found.volumes] == [name]


def test_a_lone_target_is_an_anonymous_volume() -> None:
    found = plan({"Binds": ["/data"]})
    assert (codes(found), found.binds, found.volumes) == ([], (), ())


@pytest.mark.parametrize(
    "spelled",
    [
        "", ":", ":/b", "/a:", "/a:b", "/a:/", "/a:/b:", "/a:/b:xx", "/a:/b:ro,rw", "/a:/b:ro:x",
        "/a:ro", "rel",
        "./x:/b", "dev/null:/b", "../x:/b", "~:/b",
        "a b:/b", "/a\0:/b", "-x:/b", "/a:/b:ro,", "/a:/b:RO",
        "\uff0fdev:/b", "C:\\x:/b",
    ],
)  # fmt: skip
def test_unreadable_binds(spelled: str) -> None:
    assert "mount-malformed" in codes(plan({"Binds": [spelled]}))


@pytest.mark.parametrize("mode", ["shared", "rshared", "slave", "rslave"])
def test_propagation(mode: str) -> None:
    assert codes(plan({"Binds": [f"/a:/b:{mode}"]})) == ["mount-propagation"]
    mount = {"Type": "bind", "Source": "/a", "Target": "/b", "BindOptions": {"Propagation": mode}}
    assert codes(plan({"Mounts": [mount]})) == ["mount-propagation"]


def test_bind_mounts_are_read_like_binds() -> None:
    found = plan({"Mounts": [{"Type": "bind", "Source": "/x/../a", "Target": "/b", "ReadOnly": True}]})
    assert [(one.source, one.writable) for one in found.binds] == [("/a", False)]
    assert found.host_config.mounts is not None
    assert found.host_config.mounts[0].source == "/a"


MOUNTS = [
    ({"Type": "volume", "Target": "/b"}, []),
    (
        {
            "Type": "volume",
            "Source": "v",
            "Target": "/b",
            "VolumeOptions": {"NoCopy": True, "Subpath": "a/b"},
        },
        [],
    ),
    ({"Type": "volume", "Target": "/b", "VolumeOptions": {"DriverConfig": {"Name": "local"}}}, []),
    ({"Type": "tmpfs", "Target": "/b", "TmpfsOptions": {"SizeBytes": 1, "Mode": 0o1777}}, []),
    ({"Type": "tmpfs", "Target": "/b", "TmpfsOptions": {"Options": [["exec"]]}}, []),
    ({"Type": "image", "Source": "bb:1", "Target": "/b", "ImageOptions": {"Subpath": "x"}}, []),
    ({"Type": "tmpfs", "Target": "/b", "TmpfsOptions": {"Options": [["dev"]]}}, ["tmpfs-option"]),
    ({"Type": "tmpfs", "Target": "/b", "TmpfsOptions": {"Options": [["mode", "1"]]}}, ["tmpfs-option"]),
    ({"Type": "bind", "Source": "a", "Target": "/b"}, ["mount-malformed"]),
    ({"Type": "bind", "Source": "", "Target": "/b"}, ["mount-malformed"]),
    ({"Type": "volume", "Source": "/dev", "Target": "/b"}, ["mount-malformed"]),
    ({"Type": "volume", "Source": "v", "Target": "b"}, ["mount-malformed"]),
    ({"Type": "npipe", "Source": "x", "Target": "/b"}, ["mount-type"]),
    ({"Type": "cluster", "Source": "x", "Target": "/b"}, ["mount-type"]),
    ({"Type": "BIND", "Source": "/dev", "Target": "/b"}, ["mount-type"]),
    ({"Source": "/dev", "Target": "/b"}, ["mount-type"]),
    ({"Type": "volume", "Target": "/b", "VolumeOptions": {"Subpath": "../x"}}, ["mount-malformed"]),
    (
        {"Type": "image", "Source": "i", "Target": "/b", "ImageOptions": {"Subpath": "/x"}},
        ["mount-malformed"],
    ),
    (
        {"Type": "volume", "Target": "/b", "VolumeOptions": {"DriverConfig": {"Options": {"o": "bind"}}}},
        ["volume-option"],
    ),
    (
        {"Type": "tmpfs", "Target": "/b", "VolumeOptions": {"DriverConfig": {"Name": "nfs"}}},
        ["volume-driver"],
    ),
    ({"Type": "volume", "Target": "/var/run/nvidia-container-devices/all", "Source": "v"}, ["mount-target"]),
]


@pytest.mark.parametrize(("mount", "expected"), MOUNTS)
def test_mounts(mount: dict[str, object], expected: list[str]) -> None:
    assert codes(plan({"Mounts": [mount]})) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", []),
        ("size=64m,mode=1777,uid=0,nr_inodes=1k,noexec,nosuid,nodev", []),
        ("exec", []),
        ("dev", ["tmpfs-option"]),
        ("size=1,suid", ["tmpfs-option"]),
        ("bind", ["tmpfs-option"]),
        ("size=1m;dev", ["tmpfs-option"]),
        ("remount", ["tmpfs-option"]),
    ],
)
def test_tmpfs(options: str, expected: list[str]) -> None:
    assert codes(plan({"Tmpfs": {"/t": options}})) == expected


def test_tmpfs_needs_an_absolute_target() -> None:
    assert codes(plan({"Tmpfs": {"t": ""}})) == ["mount-malformed"]
    assert codes(plan({"Tmpfs": {"/": ""}})) == ["mount-malformed"]


def test_runtime_targets_in_every_field() -> None:
    target = "/var/run/../run/nvidia-container-devices/all"
    assert codes(plan({"Tmpfs": {target: ""}})) == ["mount-target"]
    assert codes(plan({"Binds": [f"v:{target}"]})) == ["mount-target"]
    found = read_mounts(HostConfig(), Config(volumes={target: None}))
    assert codes(found) == ["mount-target"]


def test_lists_that_nobody_needs_are_refused_unread() -> None:
    assert codes(plan({"Binds": ["v:/b"] * MAX_ITEMS})) == []
    assert codes(plan({"Binds": ["v:/b"] * (MAX_ITEMS + 1)})) == ["too-many"]
    assert codes(plan({"Tmpfs": {"/t": ",".join(["rw"] * 1365)}})) == []
    assert codes(plan({"Tmpfs": {"/t": ",".join(["x"] * 2049)}})) == ["tmpfs-option"]


def test_volume_driver() -> None:
    assert codes(plan({"VolumeDriver": "rexray", "Binds": ["v:/b"]})) == ["volume-driver"]
    assert codes(plan({"VolumeDriver": "local"})) == []


pieces = st.sampled_from(["/", "/dev", "a", "..", ".", ":", "ro", "rw", ",", "shared", "v1", " ", "\0", "//"])


@given(st.lists(pieces, max_size=8).map("".join))
def test_total_and_stable(spelled: str) -> None:
    """What was read, written and read again is the same."""
    found = plan({"Binds": [spelled]})
    again = read_mounts(found.host_config, Config())
    if not found.faults:
        assert (again.binds, again.volumes, again.host_config) == (
            found.binds,
            found.volumes,
            found.host_config,
        )
        assert all(bind.source.startswith("/") and ".." not in bind.source.split("/") for bind in found.binds)
