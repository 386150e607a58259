"""Host paths in requests: cleaned as the daemon cleans them, and where no bind may go. Pure.

Source: moby cleans bind sources lexically (Go's `path.Clean`) before it uses them and follows symbolic links
only at mount time, so the clean text decides here and the resolved one must pass again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gate.core.denial import Rule

_DEVICES = ("/dev",)
_SYSTEM = (
    "/proc", "/sys", "/run", "/var/run", "/boot",
    "/etc/cdi", "/etc/docker", "/etc/containerd", "/etc/rediacc", "/etc/nvidia-container-runtime",
    "/var/lib/docker", "/var/lib/containerd", "/var/lib/rediacc", "/var/lib/containers", "/var/lib/kubelet",
    "/lib/modules", "/usr/lib/modules",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reserved:
    """Why a path may not be bound."""

    rule: Rule
    words: str


def clean_path(path: str) -> str:
    """Go's `path.Clean`: shortest lexical equivalent; `..` at the root goes nowhere."""
    if not path:
        return "."
    absolute = path.startswith("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part in {"", "."}:
            continue
        if part != "..":
            parts.append(part)
        elif parts and parts[-1] != "..":
            parts.pop()
        elif not absolute:
            parts.append(part)
    return ("/" if absolute else "") + "/".join(parts) if parts or absolute else "."


def inside(path: str, root: str) -> bool:
    """Whether a clean path is `root` or below it."""
    return path == root or path.startswith(root if root.endswith("/") else root + "/")


def overlaps(path: str, other: str) -> bool:
    """Whether one of two clean paths is at, under or above the other."""
    return inside(path, other) or inside(other, path)


def reserved_reason(path: str, protected: Iterable[str] = ()) -> Reserved | None:
    """Why a clean absolute path may not be bound even below a bind root, or None.

    At, under or above `/dev` it is about devices; the same for the daemon's, the gate's and the kernel's
    directories it is about sockets, specs and settings.
    """
    for device in _DEVICES:
        if inside(path, device):
            return Reserved(Rule.BIND_DEVICE, "is a host device or their directory")
    if path == "/":
        return Reserved(Rule.BIND_SYSTEM, "is the whole host, with its devices and sockets")
    for root in (*_SYSTEM, *protected):
        if inside(path, root):
            return Reserved(Rule.BIND_SYSTEM, f"is at or under {root}, which belongs to the host")
        if inside(root, path):
            return Reserved(Rule.BIND_SYSTEM, f"is above {root}, which belongs to the host")
    return None
