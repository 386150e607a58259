"""Devices: exact CDI names with a live grant, every other form with its way forward."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi.core.names import QualifiedName
from gate.core.denial import Denial
from gate.core.devices import device_hint
from gate.core.policy import Unusable
from tests.gate.world import GPU0, FakeGrants, World, cdi, granting, host_of

GPU1 = QualifiedName.parse("nvidia.com/gpu=1")

ALLOWED = [
    cdi("nvidia.com/gpu=0"),
    cdi("nvidia.com/gpu=0", Count=0, Capabilities=None, Options=None),
    cdi("nvidia.com/gpu=0", Count=0, Capabilities=[["gpu"]], Options={}),  # --gpus driver=cdi,device=NAME
    cdi("nvidia.com/gpu=0", Capabilities=[]),
    cdi("nvidia.com/gpu=0", "nvidia.com/gpu=0"),
    {"driver": "cdi", "deviceids": ["nvidia.com/gpu=0"]},
]


@pytest.mark.parametrize("entry", ALLOWED)
def test_a_granted_name_is_forwarded_in_one_canonical_form(entry: dict[str, object]) -> None:
    sent = host_of(World().sent({"DeviceRequests": [entry]}))
    assert sent["DeviceRequests"] == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]


REFUSED = [
    (cdi("nvidia.com/gpu=1"), ("grant-missing",)),
    (cdi("nvidia.com/gpu=all"), ("grant-missing",)),
    (cdi("NVIDIA.com/gpu=0"), ("grant-missing",)),
    (cdi("nvidia.com/gpu=0", "nvidia.com/gpu=1"), ("grant-missing",)),
    (cdi("nvidia.com/gpu=0,nvidia.com/gpu=1"), ("cdi-name",)),
    (cdi("nvidia.com/gpu=0 "), ("cdi-name",)),
    (cdi("nvidia.com/gpu"), ("cdi-name",)),
    (cdi("nvidia.com/gpu=*"), ("cdi-name",)),
    (cdi("gpu=0"), ("cdi-name",)),
    (cdi("0"), ("cdi-name",)),
    (cdi(""), ("cdi-name",)),
    (cdi("nvidia.com/gpu=\uff10"), ("cdi-name",)),
    (cdi("nvidia.com/gpu=0", Count=-1), ("cdi-request",)),
    (cdi("nvidia.com/gpu=0", Count=1), ("cdi-request",)),
    (cdi("nvidia.com/gpu=0", Options={"a": "b"}), ("cdi-request",)),
    (cdi("nvidia.com/gpu=0", Capabilities=[None]), ("deploy-devices",)),
    (cdi("nvidia.com/gpu=0", Capabilities=[["gpu"]], Options=None), ("deploy-devices",)),
    (cdi("nvidia.com/gpu=0", Capabilities=[["compute"]], Options={}), ("deploy-devices",)),
    ({"Driver": "", "Count": -1, "Capabilities": [["gpu"]], "Options": {}}, ("gpus-flag",)),
    ({"Driver": "", "Count": 0, "DeviceIDs": ["0"], "Capabilities": [["gpu"]]}, ("gpus-flag",)),
    ({"Driver": "", "DeviceIDs": ["nvidia.com/gpu=0"]}, ("gpus-flag",)),
    ({}, ("gpus-flag",)),
    ({"Capabilities": [[]]}, ("gpus-flag",)),
    (None, ("gpus-flag",)),
    ({"Driver": "nvidia", "Count": 1, "Capabilities": [["gpu"]]}, ("device-driver",)),
    ({"Driver": "nvidia.cdi", "DeviceIDs": ["0"]}, ("device-driver",)),
    ({"Driver": "nvidia.runtime-hook"}, ("device-driver",)),
    ({"Driver": "amd", "Count": -1}, ("device-driver",)),
    ({"Driver": "CDI", "DeviceIDs": ["nvidia.com/gpu=0"]}, ("device-driver",)),
    ({"Driver": "cdi ", "DeviceIDs": ["nvidia.com/gpu=0"]}, ("device-driver",)),
    ({"Driver": "\u0441di", "DeviceIDs": ["nvidia.com/gpu=0"]}, ("device-driver",)),
]


@pytest.mark.parametrize(("entry", "codes"), REFUSED)
def test_refused(entry: object, codes: tuple[str, ...]) -> None:
    assert World().codes({"DeviceRequests": [entry]}) == codes


@pytest.mark.parametrize(
    "entry", [cdi("nvidia.com/gpu=0", Count=0.0), cdi("nvidia.com/gpu=0", Count="0"), "cdi", []]
)
def test_unreadable(entry: object) -> None:
    assert World().codes({"DeviceRequests": [entry]}) == ("malformed",)


def test_an_empty_request_asks_for_nothing_and_is_left_out() -> None:
    assert "DeviceRequests" not in host_of(World().sent({"DeviceRequests": [cdi()]}))


def test_several_requests_become_one() -> None:
    world = granting(GPU0, GPU1)
    entries = [cdi("nvidia.com/gpu=1"), cdi("nvidia.com/gpu=0", "nvidia.com/gpu=1")]
    sent = host_of(world.sent({"DeviceRequests": entries}))
    assert sent["DeviceRequests"] == [
        {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1", "nvidia.com/gpu=0"]}
    ]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Unusable.MISSING, "grant-missing"),
        (Unusable.EXPIRED, "grant-expired"),
        (Unusable.DRIFTED, "grant-drifted"),
        (Unusable.OTHER, "grant-unusable"),
    ],
)
def test_why_a_grant_does_not_help(reason: Unusable, code: str) -> None:
    world = granting(grants=FakeGrants(granted=(), refused={GPU0: reason}))
    decision = world.create({"DeviceRequests": [cdi(str(GPU0))]})
    assert isinstance(decision, Denial)
    assert decision.codes() == (code,)
    assert "rdc repo gpu" in decision.message()


def test_the_exact_grant_command_is_named() -> None:
    decision = World().create({"DeviceRequests": [cdi("nvidia.com/gpu=1")]})
    assert isinstance(decision, Denial)
    assert decision.message() == (
        "device nvidia.com/gpu=1 is not granted to repo gpu-a [grant-missing]: "
        "ask the operator for 'rdc repo gpu grant gpu-a --device nvidia.com/gpu=1'"
    )


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"Count": -1}, "(all)"),
        ({"Count": 2}, "(count 2)"),
        ({"Count": 0}, "(count 0)"),
        ({"Count": -1, "DeviceIDs": ["0", "1"]}, "(device=0,1)"),
        (cdi("nvidia.com/gpu=0", Capabilities=[None]), "devices: [nvidia.com/gpu=0]"),
    ],
)
def test_a_message_repeats_what_was_asked(entry: dict[str, object], words: str) -> None:
    decision = World().create({"DeviceRequests": [entry]})
    assert isinstance(decision, Denial)
    assert words in decision.message()


def test_a_message_names_at_most_eight_devices() -> None:
    for count, more in ((8, False), (9, True)):
        world = granting(*(QualifiedName.parse(f"a.com/bb={n}") for n in range(count)))
        decision = world.create({"DeviceRequests": [{}]})
        assert isinstance(decision, Denial)
        assert ("…" in decision.message()) == more


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"Count": -1}, "--device nvidia.com/gpu=all,"),
        ({"Count": 2}, "--device nvidia.com/gpu=0,"),
        ({"DeviceIDs": ["1", "3"]}, "--device nvidia.com/gpu=1 --device nvidia.com/gpu=3,"),
        ({"DeviceIDs": ["GPU-12"], "Driver": "nvidia"}, "devices: [nvidia.com/gpu=GPU-12]"),
        ({"DeviceIDs": ["rediacc.io/dri=renderD128"]}, "--device rediacc.io/dri=renderD128,"),
        ({"DeviceIDs": ["1"], "Driver": "amd"}, "devices: [rediacc.io/amd=gpu1]"),
        ({"DeviceIDs": ["no name; at all"]}, "--device nvidia.com/gpu=0,"),
    ],
)
def test_other_forms_are_translated(asked: dict[str, object], named: str) -> None:
    decision = World().create({"DeviceRequests": [asked]})
    assert isinstance(decision, Denial)
    assert named in decision.message()


def test_other_forms_name_what_is_granted() -> None:
    decision = World().create({"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}]})
    assert isinstance(decision, Denial)
    assert "nvidia.com/gpu=0" in decision.message()
    nothing = granting().create({"DeviceRequests": [{"Count": -1}]})
    assert isinstance(nothing, Denial)
    assert "rdc repo gpu grant gpu-a" in nothing.message()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/dev/nvidia0", "raw-device"),
        ("dev/nvidia0", "raw-device"),
        ("proc/self/root/dev/sda", "raw-device"),
        ("/tmp", "raw-device"),
        ("", "raw-device"),
        ("nvidia.com/gpu=0", "cdi-target"),
    ],
)
def test_no_host_device_by_any_path(path: str, code: str) -> None:
    entry = {"PathOnHost": path, "PathInContainer": "/x", "CgroupPermissions": "rwm"}
    assert World().codes({"Devices": [entry]}) == (code,)
    assert World().codes({"Devices": [None]}) == ("raw-device",)


def test_device_cgroup_rules() -> None:
    assert World().codes({"DeviceCgroupRules": ["c 195:* rwm"]}) == ("device-cgroup-rule",)
    assert World().codes({"DeviceCgroupRules": []}) == ()


@pytest.mark.parametrize(
    "key", ["BlkioDeviceReadBps", "BlkioDeviceWriteBps", "BlkioDeviceReadIOps", "BlkioDeviceWriteIOps"]
)
def test_throttles_name_host_devices(key: str) -> None:
    assert World().codes({key: [{"Path": "/dev/sda", "Rate": 1}]}) == ("blkio-device",)
    assert World().codes({key: [None]}) == ("malformed",)
    assert World().codes({"BlkioWeightDevice": [{"Path": "/dev/sda", "Weight": 1}]}) == ("blkio-device",)


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("/dev/dri/renderD129", "rediacc.io/dri=renderD129"),
        ("/dev/dri", "rediacc.io/dri=renderD128"),
        ("/dev/kfd", "rediacc.io/amd=gpu0"),
        ("/dev/nvidia3", "nvidia.com/gpu=3"),
        ("/dev/nvidiactl", "nvidia.com/gpu=0"),
        ("/dev/nvidia\u0663", "nvidia.com/gpu=0"),
    ],
)
def test_hints_name_the_likely_device_first_and_all_kinds(path: str, first: str) -> None:
    hint = device_hint(path)
    assert f"--device {first}," in hint
    assert all(kind in hint for kind in ("nvidia.com/gpu", "rediacc.io/dri", "rediacc.io/amd"))


names = st.lists(st.sampled_from([f"nvidia.com/gpu={n}" for n in range(4)]), max_size=4)


@given(names, st.sets(st.integers(0, 3)), st.integers(0, 3))
def test_taking_a_grant_away_never_allows_more(wanted: list[str], held: set[int], taken: int) -> None:
    def allowed(numbers: set[int]) -> bool:
        world = granting(*(QualifiedName.parse(f"nvidia.com/gpu={n}") for n in numbers))
        return world.codes({"DeviceRequests": [cdi(*wanted)]}) == ()

    assert allowed(held) or not allowed(held - {taken})
    assert allowed(held) == {int(name[-1]) for name in wanted}.issubset(held)
