"""Looking at the whole machine: NVML, the kernel's files, container programs."""

import platform as python_platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from base.clock import Clock
from grants.core.model import whole_seconds
from machine.core.inventory import Card, Inventory, Nvidia, Platform, RenderNode
from machine.core.nvml import NvmlReport, nvidia_cards
from machine.hardware import DXG, Hardware
from machine.nvidia_ctk import Toolkit
from machine.nvml import ask
from machine.runtimes import find_runtimes, gvisor

_MAC = "a Mac runs containers in a virtual machine without GPUs: repos here are CPU-only"
_DXG = f"all cards are behind {DXG}: nvidia.com/gpu=all is the only device, single cards cannot be granted"
_NO_KFD = "AMD cards are there, and /dev/kfd is not: they can render, and not compute"


def detect(
    hardware: Hardware,
    clock: Clock,
    environ: Mapping[str, str],
    *,
    engine_dir: Path | None,
    toolkit: Toolkit | None,
    system: str | None = None,
    ask_nvml: Callable[..., NvmlReport] = ask,
) -> Inventory:
    """The inventory as of now; what fails is told in it.

    Args:
        hardware: the kernel's files and device nodes.
        clock: dates it.
        environ: for the programs that are asked.
        engine_dir: `engine.dir` of gate.yaml.
        toolkit: the nvidia-ctk that was found.
        system: `Darwin` on a Mac; None asks Python.
        ask_nvml: asks NVML.
    """
    platform = hardware.platform()
    report = ask_nvml(environ, wsl=platform is Platform.WSL)
    driver = hardware.nvidia_driver() or report.driver_version
    cards = nvidia_cards(
        report,
        kernel=hardware.nvidia_kernel_cards(),
        bus=hardware.nvidia_on_the_bus(),
        driver_version=driver,
    )
    nodes = hardware.render_nodes()
    amd, kfd = hardware.amd_cards(nodes), hardware.kfd()
    runtimes = find_runtimes(engine_dir, environ)
    remarks = [
        text
        for text, holds in (
            (_MAC, (system or python_platform.system()) == "Darwin"),
            (_DXG, platform is Platform.WSL and bool(cards)),
            (_NO_KFD, bool(amd) and not kfd),
        )
        if holds
    ]
    return Inventory(
        detected_at=whole_seconds(clock.now()),
        platform=platform,
        gpus=(*_with_render_nodes(cards, nodes), *amd),
        nvidia=_nvidia(report, cards, driver, toolkit),
        kfd=kfd,
        render_nodes=nodes,
        runtimes=runtimes,
        gvisor=gvisor(runtimes, environ),
        remarks=tuple(remarks),
    )


def _with_render_nodes(cards: tuple[Card, ...], nodes: tuple[RenderNode, ...]) -> tuple[Card, ...]:
    paths = {node.pci: node.path for node in nodes if node.pci is not None}
    return tuple(replace(card, render_node=paths.get(card.pci)) if card.pci else card for card in cards)


def _nvidia(
    report: NvmlReport, cards: tuple[Card, ...], driver: str | None, toolkit: Toolkit | None
) -> Nvidia | None:
    if not cards and driver is None and (report.without_driver or report.fault is None):
        return None
    return Nvidia(
        driver_version=driver,
        cuda_version=report.cuda_version,
        toolkit_version=None if toolkit is None else toolkit.version,
        confidential_computing=report.confidential_computing,
        fault=report.fault,
    )
