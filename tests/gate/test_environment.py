"""Variables that device runtimes read as requests."""

import pytest

from gate.core.environment import owned_environment
from tests.gate.world import World, allowing, cdi

VOID = "NVIDIA_VISIBLE_DEVICES=void"


@pytest.mark.parametrize("env", [None, (), ("A=b", "NVIDIA_VISIBLE_DEVICES=all")])
def test_a_plain_container_is_left_alone(env: tuple[str, ...] | None) -> None:
    assert owned_environment(env, devices=False, runtime="runc") == (env, ())


@pytest.mark.parametrize(
    ("env", "expected", "warned"),
    [
        (None, (VOID,), 0),
        (("A=b",), ("A=b", VOID), 0),
        (("NVIDIA_VISIBLE_DEVICES=all", "A=b"), ("A=b", VOID), 1),
        (("NVIDIA_VISIBLE_DEVICES",), (VOID,), 1),
        ((VOID,), (VOID,), 0),
        (("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=1", VOID), (VOID,), 1),
        (("AMD_VISIBLE_DEVICES=all",), (VOID,), 1),
        (("NVIDIA_DRIVER_CAPABILITIES=all",), ("NVIDIA_DRIVER_CAPABILITIES=all", VOID), 0),
    ],
)
@pytest.mark.parametrize(("devices", "runtime"), [(True, ""), (False, "runsc")])
def test_void_where_something_reads_it(
    env: tuple[str, ...] | None, expected: tuple[str, ...], warned: int, devices: bool, runtime: str
) -> None:
    found, warnings = owned_environment(env, devices=devices, runtime=runtime)
    assert (found, len(warnings)) == (expected, warned)


def test_in_a_create() -> None:
    device = {"DeviceRequests": [cdi("nvidia.com/gpu=0")]}
    assert World().sent(device, Env=["NVIDIA_VISIBLE_DEVICES=all"])["Env"] == [VOID]
    assert World().sent({}, Env=["NVIDIA_VISIBLE_DEVICES=all"])["Env"] == ["NVIDIA_VISIBLE_DEVICES=all"]
    assert allowing(runtimes=("runsc",)).sent({"Runtime": "runsc"})["Env"] == [VOID]
    assert "Env" not in World().sent({})
