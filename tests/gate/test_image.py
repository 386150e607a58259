"""Builds, imports and commits."""

from dataclasses import replace

import pytest

from base.errors import MalformedError
from gate.core.denial import Denial
from gate.core.facts import BuilderFact
from gate.core.policy import Forward
from tests.gate.world import World, allowing, body_of


def codes(target: bytes, world: World | None = None) -> tuple[str, ...]:
    decision = (world or World()).decide("POST", target)
    return decision.codes() if isinstance(decision, Denial) else ()


BUILDS = [
    (b"/build", ()),
    (b"/build?dockerfile=Dockerfile&t=a&t=b&version=1&networkmode=none&rm=1", ()),
    (b"/build?version=2&remote=client-session&session=x&buildid=y&outputs=%5B%5D", ()),
    (b"/build?networkmode=default", ()),
    (b"/build?networkmode=my_net", ()),
    (b"/build?remote=http%3A%2F%2F10.0.0.1%2Fx.tar", ("build-remote",)),
    (b"/build?remote=git%3A%2F%2Fx", ("build-remote",)),
    (b"/build?networkmode=host", ("build-network",)),
    (b"/build?networkmode=container:x", ("build-network",)),
    (b"/build?cgroupparent=%2Fx", ("build-option",)),
    (b"/build?securityopt=seccomp%3Dunconfined", ("security-option",)),
    (b"/build?version=3", ("build-option",)),
    (b"/build?isolation=hyperv", ("build-option",)),
    (b"/build?networkmode=host&remote=x&cgroupparent=y", ("build-remote", "build-network", "build-option")),
    (b"/images/create?fromImage=bb&tag=1&platform=linux%2Famd64", ()),
    (b"/images/create?fromSrc=-&repo=x&changes=ENV+A%3Db&changes=CMD+x", ()),
    (b"/images/create?fromSrc=http%3A%2F%2Fx", ("image-url",)),
    (b"/images/create?fromSrc=example.com%2Fx.tar", ("image-url",)),
]


@pytest.mark.parametrize(("target", "expected"), BUILDS)
def test_judged_by_the_query(target: bytes, expected: tuple[str, ...]) -> None:
    assert codes(target) == expected


def test_buildkit_builds_only_where_no_device_can_be_reached() -> None:
    world = replace(World(), builder=BuilderFact(version="28.5.2", spec_dirs=("/etc/cdi",)))
    assert codes(b"/build?version=2&networkmode=host", world) == ("build-network", "builder-devices")
    assert codes(b"/build?version=2", replace(World(), silent=True)) == ("lookup-failed",)
    assert codes(b"/build?version=1", world) == codes(b"/build", world) == ()


def test_the_tar_is_streamed_as_one() -> None:
    decision = World().decide("POST", b"/v1.44/build?t=a&evil=1")
    assert decision == Forward(target=b"/v1.44/build?t=a", content_type=b"application/x-tar")


def test_the_policy_widens() -> None:
    assert codes(b"/build?networkmode=host", allowing(network_host=True)) == ()
    assert codes(b"/build?securityopt=a%3Db", allowing(security_options=("a=b",))) == ()
    assert codes(b"/build?networkmode=container:x", allowing(network_host=True)) == ("build-network",)


def test_the_operators_cgroup_parent_is_forced() -> None:
    decision = allowing(cgroup_parent="/repo").decide("POST", b"/build?cgroupparent=&t=a")
    assert isinstance(decision, Forward)
    assert decision.target == b"/build?t=a&cgroupparent=%2Frepo"


@pytest.mark.parametrize("raw", [b"", b"null", b"{}", b'{"HostConfig":{"Privileged":true}}'])
def test_a_commit_without_configuration_has_no_body(raw: bytes) -> None:
    decision = World().decide("POST", b"/commit?container=c&repo=r&changes=a&changes=b", raw)
    assert decision == Forward(target=b"/commit?container=c&repo=r&changes=a&changes=b")


def test_a_commits_configuration_is_rebuilt() -> None:
    decision = World().decide("POST", b"/commit?container=c", b'{"env":["A=b"],"X":1,"HostConfig":{}}')
    assert body_of(decision) == {"Hostname": "", "Env": ["A=b"]}
    assert body_of(World().decide("POST", b"/commit", b'{"Tty":false}')) == {"Hostname": ""}


@pytest.mark.parametrize("raw", [b"[]", b'{"Env":{}}', b"x"])
def test_a_commit_that_cannot_be_read(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        World().decide("POST", b"/commit", raw)
