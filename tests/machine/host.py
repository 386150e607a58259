"""Lays out a machine's `/dev`, `/proc` and `/sys` below a folder, with real device nodes."""

import os
import stat
from pathlib import Path

from tests.conftest import missing

NVIDIA_VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Feb 12 04:19:36 UTC 2025\n"
OPEN_NVIDIA_VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n"


class Host:
    """A machine without devices, until they are added."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("dev", "proc", "sys"):
            (root / name).mkdir(parents=True)

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def node(self, path: str, major: int, minor: int, *, mode: int = 0o666, gid: int = 0) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mknod(target, stat.S_IFCHR | 0o600, os.makedev(major, minor))
            os.chown(target, 0, gid)
        except PermissionError:
            missing("dockerd", "device nodes can be made by root only")
        target.chmod(mode)

    def link(self, path: str, target: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).symlink_to(target)

    def nvidia_driver(self, version: str, template: str = NVIDIA_VERSION) -> None:
        self.write("proc/driver/nvidia/version", template.format(version))
        for name, minor in (("nvidiactl", 255), ("nvidia-modeset", 254)):
            self.node(f"dev/{name}", 195, minor)
        self.node("dev/nvidia-uvm", 510, 0)

    def on_the_bus(self, pci: str, *, vendor: str = "0x10de", class_: str = "0x030200") -> None:
        self.write(f"sys/bus/pci/devices/{pci}/vendor", f"{vendor}\n")
        self.write(f"sys/bus/pci/devices/{pci}/class", f"{class_}\n")

    def nvidia_card(self, pci: str, minor: int, uuid: str) -> None:
        self.on_the_bus(pci)
        self.node(f"dev/nvidia{minor}", 195, minor)
        text = f"Model: \t\t NVIDIA\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        self.write(f"proc/driver/nvidia/gpus/{pci}/information", text)

    def render_node(
        self, minor: int, pci: str | None, driver: str, *, mode: int = 0o660, gid: int = 104
    ) -> None:
        name = f"renderD{minor}"
        self.node(f"dev/dri/{name}", 226, minor, mode=mode, gid=gid)
        device = f"sys/devices/{pci or driver}"
        self.write(f"sys/class/drm/{name}/dev", f"226:{minor}\n")
        (self.root / device).mkdir(parents=True, exist_ok=True)
        self.link(f"sys/class/drm/{name}/device", f"../../../devices/{pci or driver}")
        if not (self.root / device / "driver").is_symlink():
            self.link(f"{device}/driver", f"../../bus/drivers/{driver}")
        self.link(f"sys/dev/char/226:{minor}/device", f"../../../devices/{pci or driver}")

    def amd_card(self, minor: int, pci: str, **files: str) -> None:
        self.on_the_bus(pci, vendor="0x1002", class_="0x038000")
        self.render_node(minor, pci, "amdgpu")
        for name, text in files.items():
            self.write(f"sys/devices/{pci}/{name}", f"{text}\n")
