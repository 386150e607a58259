"""Whole machines: the stand-in for NVML, asked through the real pynvml, and laid-out kernel files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from machine.core.inventory import encode, parse
from machine.detect import detect
from machine.hardware import Hardware
from machine.nvidia_ctk import Toolkit
from machine.runtimes import PROGRAMS
from tests.engine import REPOSITORY
from tests.fake_clock import FakeClock
from tests.machine.host import OPEN_NVIDIA_VERSION, Host
from tests.nvml.fake import FOLDER, nvml_environment

GOLDEN = REPOSITORY / "tests/golden/inventory"
DRIVER = "570.133.20"


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-4000-8000-{index:012x}"


def one(host: Host) -> None:
    host.nvidia_driver(DRIVER)
    host.nvidia_card("0000:01:00.0", 0, "GPU-2f68f999-7b41-e64a-3709-0c8c4fa756c0")
    host.render_node(128, "0000:01:00.0", "nvidia")


def eight(host: Host) -> None:
    host.nvidia_driver(DRIVER, OPEN_NVIDIA_VERSION)
    for index in range(8):
        host.nvidia_card(f"0000:{index + 1:02x}:00.0", index, uuid(index))


def mixed_mig(host: Host) -> None:
    host.nvidia_driver(DRIVER)
    for index in range(4):
        host.nvidia_card(f"0000:{index + 1:02x}:00.0", index, uuid(index))


def one_lost(host: Host) -> None:
    mixed_mig(host)


def mismatch(host: Host) -> None:
    host.nvidia_driver("550.163.01")
    for index in range(2):
        host.nvidia_card(f"0000:{index + 1:02x}:00.0", index, uuid(index))


def no_driver(host: Host) -> None:
    host.on_the_bus("0000:01:00.0", class_="0x030000")
    host.on_the_bus("0000:01:00.1", class_="0x040300")
    host.on_the_bus("0000:02:00.0", vendor="0x8086", class_="0x030000")


def wsl(host: Host) -> None:
    host.write("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    host.node("dev/dxg", 10, 125)


def amd(host: Host) -> None:
    host.node("dev/kfd", 511, 0, mode=0o660, gid=104)
    host.write("sys/module/amdgpu/version", "6.10.5\n")
    host.amd_card(129, "0000:83:00.0", device="0x74a1", unique_id="5a1f0c2d3e4b5a69")
    host.amd_card(130, "0000:03:00.0", product_name="AMD Instinct MI300X", mem_info_vram_total="206141652992")
    host.render_node(128, "0000:00:02.0", "i915")


def none(host: Host) -> None:
    host.write("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n")


@pytest.mark.parametrize("lay_out", [one, eight, mixed_mig, one_lost, mismatch, no_driver, wsl, amd, none])
def test_golden_inventories(lay_out: Callable[[Host], None], tmp_path: Path, regen: bool) -> None:
    name = lay_out.__name__
    host = Host(tmp_path / "host")
    lay_out(host)
    scenario = FOLDER / f"scenarios/{name}.txt"
    tools = tmp_path / "tools"
    tools.mkdir()
    for program in PROGRAMS:
        (tools / program).write_text(
            f"#!/bin/sh\n[ $1 = nvproxy ] && echo 570.133.20 || echo {program} version 1.2.3\n"
        )
        (tools / program).chmod(0o755)
    found = detect(
        Hardware(host.root),
        FakeClock(),
        nvml_environment(scenario if scenario.exists() else FOLDER / "scenarios/no_driver.txt"),
        engine_dir=tools,
        toolkit=Toolkit(path=tools / "nvidia-ctk", version="1.17.8") if name == "one" else None,
        system="Linux",
    )
    raw = encode(found)
    assert parse(raw) == found
    document = json.loads(raw.replace(f"{tools}/".encode(), b"/opt/tools/"))
    golden = GOLDEN / f"{name}.json"
    if regen:
        golden.write_text(json.dumps(document, indent=1) + "\n")
    assert document == json.loads(golden.read_text())


def test_a_mac_says_that_it_is_cpu_only(tmp_path: Path) -> None:
    found = detect(
        Hardware(Host(tmp_path).root),
        FakeClock(),
        nvml_environment(FOLDER / "scenarios/no_driver.txt"),
        engine_dir=None,
        toolkit=None,
        system="Darwin",
    )
    assert found.gpus == ()
    assert any("CPU-only" in remark for remark in found.remarks)
