"""The machine's hardware as the kernel shows it: PCI, DRM and driver files, and device nodes.

Source: kernel documentation of sysfs (`/sys/bus/pci`, `/sys/class/drm`), amdgpu's sysfs files, the NVIDIA
driver's `/proc/driver/nvidia`. What cannot be read is not there; nothing raises.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from cdi.core.resolve import GpuInfo, HostNode
from cdi.probe import SystemProbe
from machine.core.inventory import Card, Platform, RenderNode, Vendor

KFD = "/dev/kfd"
DXG = "/dev/dxg"
_NVIDIA_ID = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")
"""PCI classes of VGA and of 3D controllers."""
_DRIVER_VERSION = re.compile(
    r"(?:Kernel Module|x86_64|aarch64)[^\n]*?\s(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)\s", re.ASCII
)
_RENDER = re.compile(r"renderD(\d{1,4})", re.ASCII)
_NUMBERS = re.compile(r"\d{1,4}:\d{1,7}", re.ASCII)
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_MAX_BYTES = 64 * 1024


class Hardware:
    """The hardware of the machine whose `/dev`, `/proc` and `/sys` lie below `host`."""

    def __init__(self, host: Path) -> None:
        self._host = host
        self.probe = SystemProbe(host)

    def platform(self) -> Platform:
        """WSL by its device or its kernel's name."""
        kernel = self._text("proc/sys/kernel/osrelease") or ""
        wsl = isinstance(self.probe.lstat(DXG), HostNode) or "microsoft" in kernel.lower()
        return Platform.WSL if wsl else Platform.NATIVE

    def nvidia_driver(self) -> str | None:
        """The version of the loaded NVIDIA kernel module."""
        match = _DRIVER_VERSION.search(f"{self._text('proc/driver/nvidia/version') or ''} ")
        return match[1] if match else None

    def nvidia_kernel_cards(self) -> tuple[GpuInfo, ...]:
        """The cards that the kernel module serves."""
        return self.probe.gpus()

    def nvidia_on_the_bus(self) -> tuple[str, ...]:
        """PCI addresses of NVIDIA's display controllers, with or without a driver, sorted."""
        return tuple(
            folder.name.lower()
            for folder in self._folders("sys/bus/pci/devices")
            if self._text(folder / "vendor") == _NVIDIA_ID
            and (self._text(folder / "class") or "").startswith(_DISPLAY_CLASSES)
        )

    def kfd(self) -> bool:
        """Whether AMD's compute node is there."""
        return isinstance(self.probe.lstat(KFD), HostNode)

    def render_nodes(self) -> tuple[RenderNode, ...]:
        """The DRM render nodes that have a device file, by number."""
        nodes = (self._render_node(folder) for folder in self._folders("sys/class/drm"))
        return tuple(sorted((node for node in nodes if node is not None), key=lambda node: node.minor))

    def _render_node(self, folder: Path) -> RenderNode | None:
        if not _RENDER.fullmatch(folder.name) or not _NUMBERS.fullmatch(self._text(folder / "dev") or ""):
            return None
        path = f"/dev/dri/{folder.name}"
        node = self.probe.lstat(path)
        if not isinstance(node, HostNode):
            return None
        return RenderNode(
            path=path,
            major=node.major,
            minor=node.minor,
            mode=node.mode,
            gid=node.gid,
            driver=_target(folder / "device" / "driver"),
            pci=_address(folder / "device"),
        )

    def amd_cards(self, nodes: tuple[RenderNode, ...]) -> tuple[Card, ...]:
        """The cards that amdgpu drives, counted by PCI address."""
        driven = sorted(
            (node for node in nodes if node.driver == "amdgpu" and node.pci), key=lambda node: node.pci or ""
        )
        return tuple(self._amd_card(index, node) for index, node in enumerate(driven))

    def _amd_card(self, index: int, node: RenderNode) -> Card:
        device = self._host / "sys/class/drm" / Path(node.path).name / "device"
        memory = self._text(device / "mem_info_vram_total") or ""
        model = self._text(device / "product_name") or ""
        identity = self._text(device / "unique_id")
        return Card(
            vendor=Vendor.AMD,
            index=index,
            name=model or f"AMD {self._text(device / 'device') or 'GPU'}",
            uuid=identity or None,
            pci=node.pci,
            minor=node.minor,
            driver=self._text("sys/module/amdgpu/version") or "amdgpu",
            memory_bytes=int(memory) if memory.isascii() and memory.isdigit() else None,
            render_node=node.path,
        )

    def _folders(self, path: str) -> Iterator[Path]:
        try:
            yield from sorted((self._host / path).iterdir())
        except OSError:
            return

    def _text(self, path: str | Path) -> str | None:
        """A small file's text without the white space around it; None when it cannot be read."""
        try:
            with (self._host / path).open("rb") as stream:
                return stream.read(_MAX_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return None


def _target(link: Path) -> str | None:
    """The last part of where a link points."""
    try:
        return link.readlink().name or None
    except OSError:
        return None


def _address(device: Path) -> str | None:
    name = (_target(device) or "").lower()
    return name if _PCI.fullmatch(name) else None
