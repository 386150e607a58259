import os
from pathlib import Path

import pytest

from cdi.core.resolve import GpuInfo
from machine.core.inventory import Card, Fault, Vendor
from machine.core.nvml import NvmlReport, cuda_version, fault_of, kernel_address, mig_profile, nvidia_cards
from machine.nvml import ask
from tests.nvml.fake import FOLDER, nvml_environment

LOST = Fault(code="gpu-is-lost", message="lost")
UUIDS = tuple(f"GPU-{index:08x}-0000-4000-8000-{index:012x}" for index in range(3))
PCI = tuple(f"0000:0{index + 1}:00.0" for index in range(3))
KERNEL = tuple(GpuInfo(pci=PCI[index], uuid=UUIDS[index], minor=index) for index in range(3))


def card(index: int, pci: str | None, fault: Fault | None = None) -> Card:
    return Card(vendor=Vendor.NVIDIA, index=index, pci=pci, fault=fault)


def join(report: NvmlReport, kernel: tuple[GpuInfo, ...] = KERNEL) -> list[tuple[object, ...]]:
    cards = nvidia_cards(report, kernel=kernel, bus=PCI, driver_version="570.1")
    assert {each.driver for each in cards} <= {"570.1"}
    return [
        (each.index, each.pci, each.uuid, each.minor, None if each.fault is None else each.fault.code)
        for each in cards
    ]


def test_a_lost_card_is_the_one_that_only_the_kernel_knows() -> None:
    report = NvmlReport(cards=(card(0, PCI[0]), card(1, None, LOST), card(2, PCI[2])))
    assert join(report)[1] == (1, PCI[1], UUIDS[1], 1, "gpu-is-lost")
    assert join(report, kernel=())[1] == (1, PCI[1], None, None, "gpu-is-lost")


def test_a_card_that_nvml_does_not_list() -> None:
    report = NvmlReport(cards=(card(0, PCI[0]), card(1, PCI[1])))
    assert join(report)[2] == (None, PCI[2], UUIDS[2], 2, "not-in-nvml")


def test_lost_cards_that_cannot_be_told_apart_stay_without_address() -> None:
    report = NvmlReport(cards=(card(0, PCI[0]), card(1, None, LOST)))
    assert [each[:2] for each in join(report)] == [(0, PCI[0]), (1, None), (None, PCI[1]), (None, PCI[2])]


def test_the_kernel_may_not_know_the_uuid() -> None:
    kernel = (GpuInfo(pci=PCI[0], uuid="GPU-????????-????-????-????-????????????", minor=0),)
    found = nvidia_cards(NvmlReport(fault=LOST), kernel=kernel, bus=(), driver_version=None)
    assert [(each.uuid, each.minor, each.fault) for each in found] == [(None, 0, LOST)]


def test_small_things() -> None:
    assert kernel_address("00000000:0A:00.0") == "0000:0a:00.0"
    assert kernel_address("00010000:3B:00.1") == "10000:3b:00.1"
    assert kernel_address("gpu") is None
    assert [cuda_version(number) for number in (12080, 13000, 11040, 0)] == ["12.8", "13.0", "11.4", None]
    assert mig_profile("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb") == "1c.3g.20gb"
    assert mig_profile("NVIDIA A100") is None
    assert fault_of(15, "x").code == "gpu-is-lost"
    assert fault_of(999, "Unknown Error").code == "nvml-999"


def test_an_nvml_that_crashes_or_hangs_is_a_fault(tmp_path: Path) -> None:
    # The stand-in aborts when its scenario cannot be read, and waits when it is a FIFO that nobody writes.
    crashed = ask(nvml_environment(tmp_path / "missing.txt"))
    assert crashed.fault is not None
    assert crashed.fault.code == "nvml-crashed"
    assert "signal 6" in crashed.fault.message
    os.mkfifo(tmp_path / "fifo")
    hung = ask(nvml_environment(tmp_path / "fifo"), timeout_s=1.5)
    assert hung.fault is not None
    assert hung.fault.code == "nvml-timeout"


@pytest.mark.parametrize(
    ("code", "slug"), [(4, "no-permission"), (9, "driver-not-loaded"), (999, "nvml-999")]
)
def test_an_nvml_that_does_not_start(tmp_path: Path, code: int, slug: str) -> None:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(f"fail {code}\n")
    report = ask(nvml_environment(scenario))
    assert report.fault is not None
    assert report.fault.code == slug
    assert report.without_driver is (code == 9)


def test_wsl_adds_the_place_where_windows_puts_the_library(tmp_path: Path) -> None:
    environment = nvml_environment(FOLDER / "scenarios/wsl.txt")
    assert [each.name for each in ask(environment, wsl=True).cards] == ["NVIDIA GeForce RTX 4090"]
