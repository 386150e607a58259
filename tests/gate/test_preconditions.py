import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core import settings
from gate.core.daemon_process import DaemonProcess
from gate.core.denial import Rule
from gate.core.preconditions import (
    ACCEPTABLE,
    Observed,
    Precondition,
    Weight,
    not_docker,
    refusal,
    unmet,
    unreadable_info,
)

FINE = {
    "ServerVersion": "28.5.2",
    "DefaultRuntime": "runc",
    "Runtimes": {"runc": {"path": "runc"}, "io.containerd.runc.v2": {}},
    "Swarm": {"LocalNodeState": "inactive"},
    "ExperimentalBuild": False,
    "CDISpecDirs": ["/p"],
    "CgroupDriver": "systemd",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
    "Warnings": ["WARNING: No swap limit support"],
}
OFF = {"network-host": False, "security-insecure": False, "device": False}
INSECURE = {**OFF, "security-insecure": True}
PLAIN = DaemonProcess(hosts=("unix:///run/d.sock", "fd://"), entitlements=OFF)
SEEN = Observed(
    version={"ApiVersion": "1.51", "MinAPIVersion": "1.24"}, projection=frozenset({"/p"}), process=PLAIN
)
LISTENER = "[DEPRECATION NOTICE]: API is accessible on http://0.0.0.0:2375 without encryption."
F, R, A = Weight.FATAL, Weight.REQUIRED, Weight.ADVICE
P = Precondition


def test_a_plain_daemon_is_fine() -> None:
    assert unmet(FINE, SEEN) == ()
    assert unmet({}) == ()
    assert unmet(FINE, replace(SEEN, process=None, version={})) == ()


@pytest.mark.parametrize(
    ("change", "precondition", "weight"),
    [
        ({"DefaultRuntime": "nvidia"}, P.DEFAULT_RUNTIME, F),
        ({"DefaultRuntime": "Runc"}, P.DEFAULT_RUNTIME, F),
        ({"DefaultRuntime": ""}, P.DEFAULT_RUNTIME, F),
        ({"Runtimes": {"runc": {"path": "/usr/bin/nvidia-container-runtime"}}}, P.DEFAULT_RUNTIME, F),
        ({"Warnings": [LISTENER]}, P.OPEN_LISTENER, F),
        ({"Runtimes": {"runc": {}, "nvidia": {}}}, P.HARDWARE_RUNTIME, R),
        ({"Runtimes": {"kata-fc": {}}}, P.HARDWARE_RUNTIME, R),
        ({"Runtimes": {"crun-krun": {}}}, P.HARDWARE_RUNTIME, R),
        ({"Runtimes": {"sysbox-runc": {}}}, P.HARDWARE_RUNTIME, R),
        ({"Runtimes": {"gpu": {"path": "/opt/nvidia-container-runtime"}}}, P.HARDWARE_RUNTIME, R),
        ({"Runtimes": {"k": {"runtimeType": "io.containerd.kata.v2"}}}, P.HARDWARE_RUNTIME, R),
        ({"Swarm": {"LocalNodeState": "active"}}, P.SWARM, R),
        ({"Swarm": {"LocalNodeState": "locked"}}, P.SWARM, R),
        ({"ExperimentalBuild": True}, P.EXPERIMENTAL, R),
        ({"CDISpecDirs": ["/etc/cdi"]}, P.CDI_SPEC_DIRS, R),
        ({"CDISpecDirs": ["/p", "/etc/cdi"]}, P.CDI_SPEC_DIRS, R),
        ({"CDISpecDirs": []}, P.NO_CDI, A),
        ({"CDISpecDirs": None}, P.NO_CDI, A),
        ({"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}, P.ROOTLESS, R),
        ({"CgroupDriver": "none"}, P.ROOTLESS, R),
    ],
)
def test_what_the_daemon_says_of_itself(
    change: dict[str, object], precondition: Precondition, weight: Weight
) -> None:
    (found,) = unmet({**FINE, **change}, SEEN)
    assert (found.precondition, found.weight) == (precondition, weight)
    assert found.detail
    assert found.remedy


@pytest.mark.parametrize(
    ("seen", "precondition", "weight"),
    [
        (replace(SEEN, process=replace(PLAIN, hosts=("tcp://127.0.0.1:2376",))), P.OPEN_LISTENER, F),
        (replace(SEEN, process=replace(PLAIN, hosts=("127.0.0.1:2376",))), P.OPEN_LISTENER, F),
        (replace(SEEN, process=replace(PLAIN, hooks=("nvidia-container-runtime-hook",))), P.DEVICE_HOOK, R),
        (replace(SEEN, process=replace(PLAIN, entitlements=INSECURE)), P.ENTITLEMENT, F),
        (replace(SEEN, process=replace(PLAIN, entitlements={**OFF, "device": True})), P.DEVICE_BUILDS, R),
        (replace(SEEN, process=replace(PLAIN, entitlements={})), P.HOST_NETWORK_BUILDS, A),
        (replace(SEEN, open_socket=True), P.OPEN_SOCKET, F),
        (replace(SEEN, version={"ApiVersion": "1.43", "MinAPIVersion": "1.24"}), P.API_VERSION, F),
        (replace(SEEN, version={"ApiVersion": "1.60", "MinAPIVersion": "1.52"}), P.API_VERSION, F),
        (replace(SEEN, version={"ApiVersion": "1.44", "MinAPIVersion": "1.12"}), P.OLD_API, R),
    ],
)  # fmt: skip
def test_what_else_was_found_out(seen: Observed, precondition: Precondition, weight: Weight) -> None:
    (found,) = unmet(FINE, seen)
    assert (found.precondition, found.weight) == (precondition, weight)


def test_engine_29_gives_its_builder_devices_unless_told_not_to() -> None:
    newer = {**FINE, "ServerVersion": "29.0.1"}
    assert unmet(newer, SEEN) == ()
    for process in (None, replace(PLAIN, entitlements=None)):
        (found,) = unmet(newer, replace(SEEN, process=process))
        assert (found.precondition, found.weight) == (P.DEVICE_BUILDS, A)


def test_a_link_to_the_projection_is_the_projection() -> None:
    linked = {**FINE, "CDISpecDirs": ["/var/run/p"]}
    assert unmet(linked, replace(SEEN, spec_dirs={"/var/run/p": "/p"})) == ()
    assert unmet(linked, replace(SEEN, spec_dirs={"/var/run/p": "/q"}))


def test_fatal_ones_come_first() -> None:
    found = unmet({"ExperimentalBuild": True, "DefaultRuntime": "nvidia", "Warnings": [LISTENER]})
    assert [each.fatal for each in found] == [True, True, False]


def test_what_bars_and_what_a_file_accepts() -> None:
    found = unmet({**FINE, "ExperimentalBuild": True, "CDISpecDirs": []}, SEEN)
    denial = refusal(found, "gpu-a", ())
    assert denial is not None
    assert (denial.status, denial.codes()) == (403, (Rule.DAEMON_PRECONDITION,))
    assert len(denial.broken) == 1
    assert "accept: [experimental]" in denial.message()
    assert refusal(found, "gpu-a", ("experimental",)) is None
    assert refusal(found, "gpu-a", ("swarm",)) == denial
    fatal = unmet({**FINE, "DefaultRuntime": "nvidia"}, SEEN)
    assert refusal(fatal, "gpu-a", tuple(P)) is not None
    assert refusal([unreadable_info("x")], "gpu-a", tuple(P)) is not None
    assert refusal([not_docker()], "gpu-a", ()) is None


def test_the_files_schema_knows_what_can_be_accepted() -> None:
    schema = json.loads((Path(settings.__file__).parent / "repo.schema.json").read_text())
    assert sorted(schema["properties"]["accept"]["items"]["enum"]) == sorted(ACCEPTABLE)


VALUES = st.none() | st.integers() | st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.none())


@given(
    st.dictionaries(st.sampled_from(sorted(FINE)), VALUES),
    st.dictionaries(st.sampled_from(["ApiVersion", "MinAPIVersion"]), VALUES),
)
def test_it_is_total(info: dict[str, object], version: dict[str, object]) -> None:
    found = unmet({**info, "Swarm": {"LocalNodeState": info.get("Swarm")}}, replace(SEEN, version=version))
    unmet(info)
    refusal(found, "r", ())


def test_a_directory_without_specs_gives_nothing_away() -> None:
    info = {**FINE, "CDISpecDirs": ["/p", "/etc/cdi"]}
    assert [each.precondition for each in unmet(info, SEEN)] == [P.CDI_SPEC_DIRS]
    assert unmet(info, replace(SEEN, empty_dirs=frozenset({"/etc/cdi"}))) == ()
