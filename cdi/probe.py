"""The host as the CDI rules ask for it: device nodes by `lstat`, cards by the kernel's files.

Source: proc and sysfs as the NVIDIA driver (`/proc/driver/nvidia/gpus/<pci>/information`) and the kernel
(`/sys/dev/char/<major>:<minor>/device`) lay them out.
"""

import os
import re
import stat
from pathlib import Path

from cdi.core.resolve import GpuInfo, HostNode, NotANode

_PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", re.ASCII)
_MAX_INFORMATION_BYTES = 64 * 1024


class SystemProbe:
    """The machine, or for tests the one laid out below `root`.

    Args:
        root: stands for `/`: every path asked for is looked up below it.
    """

    def __init__(self, root: str | Path = "/") -> None:
        self._root = str(root).rstrip("/")

    def lstat(self, path: str) -> HostNode | NotANode | None:
        """What lies at a host path; a relative one counts from the root, where daemons run."""
        try:
            status = os.lstat(f"{self._root}/{path.lstrip('/')}")
        except (OSError, ValueError):
            return None
        node_type = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}.get(stat.S_IFMT(status.st_mode))
        if node_type is None:
            return _other(status.st_mode)
        return HostNode(
            type=node_type,
            major=os.major(status.st_rdev),
            minor=os.minor(status.st_rdev),
            mode=stat.S_IMODE(status.st_mode),
            gid=status.st_gid,
        )

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The cards below `/proc/driver/nvidia/gpus`, by PCI address; one that tells no minor is left out."""
        base = Path(f"{self._root}/proc/driver/nvidia/gpus")
        try:
            addresses = sorted(entry.name for entry in base.iterdir())
        except OSError:
            return ()
        cards = (self._card(base / address / "information", address) for address in addresses)
        return tuple(card for card in cards if card is not None)

    def _card(self, path: Path, address: str) -> GpuInfo | None:
        try:
            with path.open("rb") as stream:
                text = stream.read(_MAX_INFORMATION_BYTES).decode("utf-8", "replace")
        except OSError:
            return None
        fields: dict[str, str] = {}
        for line in text.splitlines():
            name, _, value = line.partition(":")
            fields[name.strip()] = value.strip()
        minor = fields.get("Device Minor", "")
        if not (minor.isascii() and minor.isdigit()):
            return None
        return GpuInfo(pci=address.lower(), uuid=fields.get("GPU UUID", ""), minor=int(minor))

    def pci_of(self, node_type: str, major: int, minor: int) -> str | None:
        """The PCI address that sysfs links the node's device to."""
        group = "block" if node_type == "b" else "char"
        try:
            target = str(Path(f"{self._root}/sys/dev/{group}/{major}:{minor}/device").readlink())
        except (OSError, ValueError):
            return None
        name = target.rstrip("/").rpartition("/")[2]
        return name.lower() if _PCI.fullmatch(name) else None


def _other(mode: int) -> NotANode:
    if stat.S_ISLNK(mode):
        return NotANode.SYMLINK
    if stat.S_ISDIR(mode):
        return NotANode.DIRECTORY
    return NotANode.FILE if stat.S_ISREG(mode) else NotANode.OTHER
