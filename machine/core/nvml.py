"""What NVML says, and how it goes together with what the kernel says of the same cards. Pure.

NVML speaks for cards that work. One that has fallen off the bus, or all of them while driver and libraries
differ, are known to the kernel alone; they stay in the inventory with the reason.
Source: NVML API reference (`nvmlReturn_t`, `nvmlPciInfo_t`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from cdi.core.resolve import GpuInfo
from machine.core.inventory import Card, ConfidentialComputing, Fault, Vendor

NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15

_WORDS = MappingProxyType(
    {
        4: ("no-permission", "NVML may not reach the driver: run it as root"),
        9: ("driver-not-loaded", "the kernel driver is not loaded: 'modprobe nvidia', or reboot"),
        10: ("timeout", "the card does not answer: reset it, or reboot"),
        12: ("library-not-found", "libnvidia-ml.so.1 is not there: install the driver's libraries"),
        GPU_IS_LOST: ("gpu-is-lost", "the card has fallen off the bus: see the kernel log, and reboot"),
        16: ("reset-required", "the card must be reset: 'nvidia-smi --gpu-reset', or reboot"),
        18: (
            "driver-library-mismatch",
            "kernel driver and libraries have different versions: reboot, or reload the modules",
        ),
    }
)
_NOT_LISTED = Fault(
    code="not-in-nvml", message="the kernel shows the card, and NVML does not list it: reboot"
)
_PCI = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])", re.ASCII)
_NO_DRIVER = frozenset({"driver-not-loaded", "library-not-found"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReport:
    """NVML's answers; `fault` when it could not be asked at all. Cards are in the order of their indices."""

    driver_version: str | None = None
    cuda_version: str | None = None
    confidential_computing: ConfidentialComputing | None = None
    cards: tuple[Card, ...] = ()
    fault: Fault | None = None

    @property
    def without_driver(self) -> bool:
        """Whether NVML could not be asked for want of driver or library, as on a machine without NVIDIA."""
        return self.fault is not None and self.fault.code in _NO_DRIVER


def fault_of(code: int, text: str) -> Fault:
    """The fault behind an NVML return code; `text` is NVML's own word for it."""
    slug, message = _WORDS.get(code, (f"nvml-{code}", f"NVML answers '{text}'"))
    return Fault(code=slug, message=message)


def cuda_version(number: int) -> str | None:
    """`12080` is `12.8`; None for 0, which a driver without CUDA answers."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else None


def kernel_address(bus_id: str) -> str | None:
    """NVML's `00000000:01:00.0` as the kernel writes it, `0000:01:00.0`; None when it is no address."""
    match = _PCI.fullmatch(bus_id)
    if match is None:
        return None
    domain, bus, slot, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{slot}.{function}".lower()


def mig_profile(name: str) -> str | None:
    """`3g.20gb` of `NVIDIA A100-SXM4-40GB MIG 3g.20gb`."""
    _, found, profile = name.rpartition(" MIG ")
    return profile.strip() if found else None


def nvidia_cards(
    report: NvmlReport, *, kernel: Sequence[GpuInfo], bus: Iterable[str], driver_version: str | None
) -> tuple[Card, ...]:
    """Every NVIDIA card, as far as anybody knows it.

    Args:
        report: what NVML says.
        kernel: what the kernel driver shows below `/proc/driver/nvidia/gpus`.
        bus: PCI addresses of NVIDIA's display controllers.
        driver_version: of the loaded kernel module.
    """
    known = {gpu.pci: gpu for gpu in kernel}
    named = {card.pci for card in report.cards if card.pci}
    unnamed = sorted({*known, *bus} - named)
    lost = [card for card in report.cards if card.pci is None]
    # NVML's indices follow the PCI addresses, so as many lost cards as unnamed ones are those, in that order.
    addresses = iter(unnamed) if len(lost) == len(unnamed) else iter(())
    found = []
    for card in report.cards:
        address = card.pci or next(addresses, None)
        found.append(_with_kernel(card, address, known.get(address or ""), driver_version))
    if len(lost) != len(unnamed):
        fault = report.fault or _NOT_LISTED
        for address in unnamed:
            blank = Card(vendor=Vendor.NVIDIA, fault=fault)
            found.append(_with_kernel(blank, address, known.get(address), driver_version))
    return tuple(found)


def _with_kernel(card: Card, pci: str | None, gpu: GpuInfo | None, driver_version: str | None) -> Card:
    filled = replace(card, pci=pci, driver=driver_version)
    if gpu is None:
        return filled
    uuid = gpu.uuid if re.fullmatch(r"GPU-[0-9a-fA-F-]{36}", gpu.uuid, re.ASCII) else None
    return replace(filled, uuid=card.uuid or uuid, minor=gpu.minor if card.minor is None else card.minor)
