"""Host paths: cleaned as Go cleans them, reserved whatever the spelling."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core.denial import Rule
from gate.core.hostpath import clean_path, inside, overlaps, reserved_reason

paths = st.lists(st.sampled_from(["", ".", "..", "a", "dev", "b"]), max_size=7).map("/".join)


@given(paths)
def test_clean_agrees_with_the_standard_library(path: str) -> None:
    """`posixpath.normpath` is the same but for two leading slashes, which POSIX leaves open."""
    assert clean_path("/" + path) == posixpath.normpath("/" + path.lstrip("/"))
    assert clean_path(path.lstrip("/")) == posixpath.normpath(path.lstrip("/"))


@given(paths)
def test_clean_is_idempotent(path: str) -> None:
    assert clean_path(clean_path(path)) == clean_path(path)


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/dev", Rule.BIND_DEVICE),
        ("/dev/nvidia0", Rule.BIND_DEVICE),
        ("/", Rule.BIND_SYSTEM),
        ("/proc", Rule.BIND_SYSTEM),
        ("/proc/1/root", Rule.BIND_SYSTEM),
        ("/sys/class", Rule.BIND_SYSTEM),
        ("/run", Rule.BIND_SYSTEM),
        ("/var/run/x", Rule.BIND_SYSTEM),
        ("/var", Rule.BIND_SYSTEM),
        ("/etc", Rule.BIND_SYSTEM),
        ("/etc/cdi/x.yaml", Rule.BIND_SYSTEM),
        ("/var/lib/docker/volumes", Rule.BIND_SYSTEM),
        ("/srv/machine/private", Rule.BIND_SYSTEM),
        ("/srv", Rule.BIND_SYSTEM),
        ("/devel", None),
        ("/srv/data", None),
        ("/home/x/dev", None),
        ("/running", None),
    ],
)
def test_reserved(path: str, rule: Rule | None) -> None:
    found = reserved_reason(path, ("/srv/machine",))
    assert (found.rule if found else None) == rule


def test_inside_and_overlaps() -> None:
    assert inside("/a/b", "/a")
    assert inside("/a", "/a")
    assert inside("/a", "/")
    assert not inside("/ab", "/a")
    assert overlaps("/a", "/a/b")
    assert not overlaps("/a", "/b")
