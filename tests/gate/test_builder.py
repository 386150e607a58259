"""BuildKit's channels: open only while the daemon guarantees that no device can be reached through them."""

from dataclasses import replace

import pytest

from gate.core.denial import Denial
from gate.core.facts import BuilderFact
from gate.core.policy import Forward
from tests.gate.world import PROJECTION, World

EXTERNAL = replace(
    World(), context=replace(World().context, repo=replace(World().context.repo, upstream="/x/docker.sock"))
)
OURS = (PROJECTION,)

CASES = [
    (EXTERNAL, "28.5.2", OURS, ()),
    (EXTERNAL, "26.1.5+dfsg1", (), ()),
    (EXTERNAL, "28.5.2", None, ()),
    (EXTERNAL, "28.5.2", (PROJECTION + "/",), ()),
    (EXTERNAL, "29.0.0-rc.1", OURS, ("builder-entitlement",)),
    (EXTERNAL, "29.0.0", None, ("builder-entitlement",)),
    (EXTERNAL, "129.1.0", OURS, ("builder-entitlement",)),
    (EXTERNAL, "", OURS, ("builder-entitlement",)),
    (EXTERNAL, "dev", OURS, ("builder-entitlement",)),
    (EXTERNAL, "28", OURS, ("builder-entitlement",)),
    (EXTERNAL, "28.5.2", ("/etc/cdi",), ("builder-devices",)),
    (EXTERNAL, "28.5.2", (PROJECTION, "/var/run/cdi"), ("builder-devices",)),
    (EXTERNAL, "28.5.2", (PROJECTION + "/..",), ("builder-devices",)),
    (EXTERNAL, "28.5.2", ("",), ("builder-devices",)),
    (EXTERNAL, "29.1.0", ("/etc/cdi",), ("builder-entitlement", "builder-devices")),
    (World(), "29.1.0", OURS, ()),
    (World(), "29.1.0", ("/etc/cdi",), ("builder-devices",)),
]


@pytest.mark.parametrize("target", [b"/session", b"/v1.51/grpc"])
@pytest.mark.parametrize(("world", "version", "spec_dirs", "expected"), CASES)
def test_the_channel_is_open_only_where_nothing_can_be_reached(
    world: World, version: str, spec_dirs: tuple[str, ...] | None, expected: tuple[str, ...], target: bytes
) -> None:
    fact = BuilderFact(version=version, spec_dirs=spec_dirs)
    decision = replace(world, builder=fact).decide("POST", target)
    if expected:
        assert isinstance(decision, Denial)
        assert (decision.status, decision.codes()) == (403, expected)
        assert "DOCKER_BUILDKIT=0" in decision.message()
    else:
        assert decision == Forward(target=target)


def test_without_an_answer_it_is_closed() -> None:
    decision = replace(World(), silent=True).decide("POST", b"/session")
    assert isinstance(decision, Denial)
    assert decision.codes() == ("lookup-failed",)


def test_without_a_projection_no_directory_is_the_right_one() -> None:
    base = World()
    host = replace(base.context.host, projection="")
    world = replace(base, context=replace(base.context, host=host))
    for directory in ("", ".", PROJECTION):
        fact = BuilderFact(version="28.5.2", spec_dirs=(directory,))
        decision = replace(world, builder=fact).decide("POST", b"/grpc")
        assert isinstance(decision, Denial)
        assert decision.codes() == ("builder-devices",)
