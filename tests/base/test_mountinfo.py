"""The mounts of a namespace, and on which paths no link is followed."""

from pathlib import Path

import pytest

from base.mountinfo import MountEntry, covers, link_free, parse_mountinfo, way

LINES = b"""\
20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 20 8:1 /srv/a\\040b /srv/a\\040b rw,nodev,nosymfollow - ext4 /dev/sda1 rw
32 20 0:5 / /caf\xc3\xa9 ro - tmpfs tmpfs rw

not a mount
"""


def test_lines_are_read() -> None:
    root, guard, other = parse_mountinfo(LINES)
    assert root == MountEntry(id=20, parent=1, point="/", options=frozenset({"rw", "relatime"}))
    assert (guard.point, guard.follows_links) == ("/srv/a b", False)
    assert (other.point, other.follows_links) == ("/café", True)


def test_our_own_mounts_can_be_walked() -> None:
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())
    entered = [mount.point for mount in way("/proc/self/mountinfo", mounts)]
    assert entered[0] == "/"
    assert entered[-1] == "/proc"
    assert not link_free("/proc", mounts)


def test_what_is_below() -> None:
    assert covers("/", "/a")
    assert covers("/a", "/a")
    assert covers("/a", "/a/b")
    assert not covers("/a", "/ab")
    assert not covers("/a/b", "/a")


def mounts(*told: tuple[int, int, str, bool]) -> tuple[MountEntry, ...]:
    return tuple(
        MountEntry(id=id_, parent=parent, point=point, options=frozenset({"nosymfollow"} if guard else ()))
        for id_, parent, point, guard in told
    )


ROOT = (1, 0, "/", False)
CASES = [
    ("/srv/a", (ROOT, (2, 1, "/srv/a", True)), True),
    ("/srv/a/b/c", (ROOT, (2, 1, "/srv/a", True)), True),
    ("/srv/ab", (ROOT, (2, 1, "/srv/a", True)), False),
    ("/srv", (ROOT, (2, 1, "/srv/a", True)), False),
    ("/srv/a", (ROOT,), False),
    ("/srv/a", (), False),
    # A mount inside, with links and without.
    ("/srv/a/b/c", (ROOT, (2, 1, "/srv/a", True), (3, 2, "/srv/a/b", False)), False),
    ("/srv/a/b/c", (ROOT, (2, 1, "/srv/a", True), (3, 2, "/srv/a/b", True)), True),
    ("/srv/a/x", (ROOT, (2, 1, "/srv/a", True), (3, 2, "/srv/a/b", False)), True),
    # Something is mounted over the guard, at its place or above.
    ("/srv/a", (ROOT, (2, 1, "/srv/a", True), (3, 2, "/srv/a", False)), False),
    ("/srv/a", (ROOT, (2, 1, "/srv/a", True), (3, 1, "/srv", False)), False),
    ("/srv/a", (ROOT, (3, 1, "/srv", False), (2, 3, "/srv/a", True)), True),
    # The guard lies over what was there before, whatever the order of the numbers.
    ("/srv/a", (ROOT, (9, 1, "/srv/a", False), (2, 9, "/srv/a", True)), True),
    # Links again below a guard, then a guard: the way was not without links.
    ("/a/b/c", (ROOT, (2, 1, "/a", True), (3, 2, "/a/b", False), (4, 3, "/a/b/c", True)), False),
    # The whole of the machine's root, twice.
    ("/srv/a", (ROOT, (2, 1, "/", True)), True),
]


@pytest.mark.parametrize(("path", "told", "free"), CASES)
def test_where_no_link_is_followed(
    path: str, told: tuple[tuple[int, int, str, bool], ...], free: bool
) -> None:
    assert link_free(path, mounts(*told)) is free
    assert link_free(path, mounts(*reversed(told))) is free
