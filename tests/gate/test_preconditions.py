import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core.preconditions import Precondition, unmet

FINE = {
    "DefaultRuntime": "runc",
    "Runtimes": {"runc": {"path": "runc"}, "io.containerd.runc.v2": {}},
    "Swarm": {"LocalNodeState": "inactive"},
    "ExperimentalBuild": False,
    "Warnings": ["WARNING: No swap limit support"],
}
LISTENER = "[DEPRECATION NOTICE]: API is accessible on http://0.0.0.0:2375 without encryption."


def test_a_plain_daemon_is_fine() -> None:
    assert unmet(FINE) == ()
    assert unmet({}) == ()


@pytest.mark.parametrize(
    ("change", "precondition", "fatal"),
    [
        ({"DefaultRuntime": "nvidia"}, Precondition.DEFAULT_RUNTIME, True),
        ({"DefaultRuntime": "Runc"}, Precondition.DEFAULT_RUNTIME, True),
        ({"DefaultRuntime": ""}, Precondition.DEFAULT_RUNTIME, True),
        ({"Warnings": [LISTENER]}, Precondition.OPEN_LISTENER, True),
        ({"Runtimes": {"runc": {}, "nvidia": {}}}, Precondition.HARDWARE_RUNTIME, False),
        ({"Runtimes": {"kata-fc": {}}}, Precondition.HARDWARE_RUNTIME, False),
        ({"Swarm": {"LocalNodeState": "active"}}, Precondition.SWARM, False),
        ({"Swarm": {"LocalNodeState": "locked"}}, Precondition.SWARM, False),
        ({"ExperimentalBuild": True}, Precondition.EXPERIMENTAL, False),
    ],
)
def test_what_does_not_hold(change: dict[str, object], precondition: Precondition, fatal: bool) -> None:
    (found,) = unmet({**FINE, **change})
    assert (found.precondition, found.fatal) == (precondition, fatal)
    assert found.detail
    assert found.remedy


def test_fatal_ones_come_first() -> None:
    found = unmet({"ExperimentalBuild": True, "DefaultRuntime": "nvidia", "Warnings": [LISTENER]})
    assert [each.fatal for each in found] == [True, True, False]


VALUES = st.none() | st.integers() | st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.none())


@given(st.dictionaries(st.sampled_from(sorted(FINE)), VALUES))
def test_it_is_total(info: dict[str, object]) -> None:
    unmet({**info, "Swarm": {"LocalNodeState": info.get("Swarm")}})
    unmet(info)
