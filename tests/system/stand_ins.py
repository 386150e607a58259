"""A machine's spec moved onto stand-ins, so that containers start with it where there is no hardware.

Every device node gets a node with the numbers that the spec gives or a real driver would, behind which there
is no driver: opening it says ENXIO where the container may, and EPERM where its device cgroup forbids it.
Mounts get empty files, hooks a program that does nothing.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_NUMBERS = (
    (re.compile(r"/dev/nvidia([0-9]+)"), 195, None),
    (re.compile(r"/dev/nvidiactl"), 195, 255),
    (re.compile(r"/dev/nvidia-modeset"), 195, 254),
    (re.compile(r"/dev/nvidia-uvm"), 510, 0),
    (re.compile(r"/dev/nvidia-uvm-tools"), 510, 1),
    (re.compile(r"/dev/nvidia-caps/nvidia-cap([0-9]+)"), 234, None),
    (re.compile(r"/dev/nvidia-caps-imex-channels/channel([0-9]+)"), 511, None),
    (re.compile(r"/dev/dri/(?:card|renderD)([0-9]+)"), 226, None),
    (re.compile(r"/dev/dxg"), 10, 125),
)
_OTHER_MAJOR = 490
_KINDS = {
    "index": r"[0-9]+", "slice": r"[0-9]+:[0-9]+", "uuid": r"GPU-.*", "mig": r"MIG-.*", "all": r"all",
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A device node in a container."""

    path: str
    major: int
    minor: int


class StandIns:
    """Stand-ins below one directory.

    Args:
        root: a directory on a filesystem that has device nodes.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._others: dict[str, int] = {}
        root.mkdir(parents=True, exist_ok=True)
        self._hook = str(shutil.which("true"))

    def rebased(self, path: Path) -> dict[str, Any]:
        """The document of this file with every host path moved here, and the stand-ins made."""
        document: dict[str, Any] = yaml.safe_load(path.read_text())
        # A device node has had a hostPath since then.
        document["cdiVersion"] = max(document["cdiVersion"], "0.5.0")
        for edits in _every_edits(document):
            for node in edits.get("deviceNodes", ()):
                node["hostPath"] = str(self._node(node))
            for mount in edits.get("mounts", ()):
                mount["hostPath"] = str(self._file(mount["hostPath"]))
            for hook in edits.get("hooks", ()):
                hook["path"] = self._hook
        return document

    def _node(self, node: Mapping[str, Any]) -> Path:
        numbers = self._numbers(node)
        host = node.get("hostPath") or node["path"]
        # One node per numbers and path: another spec may give the same path other numbers.
        made = self._root / f"{numbers[0]}-{numbers[1]}" / str(host).lstrip("/")
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(made, 0o666 | stat.S_IFCHR, os.makedev(*numbers))
        return made

    def _numbers(self, node: Mapping[str, Any]) -> tuple[int, int]:
        if node.get("major"):
            return node["major"], node.get("minor", 0)
        path = node["path"]
        for pattern, major, minor in _NUMBERS:
            if match := pattern.fullmatch(path):
                return major, int(match[1]) if minor is None else minor
        return _OTHER_MAJOR, self._others.setdefault(path, len(self._others))

    def _file(self, host_path: str) -> Path:
        made = self._root / "files" / host_path.lstrip("/")
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
        return made


def nodes_of(document: Mapping[str, Any], name: str) -> set[Node]:
    """The nodes that a container with this device has, of a document that `rebased` made."""
    found = set()
    for edits in (_edits_of(document, name), document.get("containerEdits", {})):
        for node in edits.get("deviceNodes", ()):
            seen = Path(node["hostPath"]).stat().st_rdev
            found.add(Node(node["path"], os.major(seen), os.minor(seen)))
    return found


def mounts_of(document: Mapping[str, Any], name: str) -> set[str]:
    """The container paths that this device mounts."""
    every = (_edits_of(document, name), document.get("containerEdits", {}))
    return {mount["containerPath"] for edits in every for mount in edits.get("mounts", ())}


def chosen(names: list[str]) -> list[str]:
    """The first and the last name of each kind: by index, by UUID, a MIG slice, `all`, others."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        kinds.setdefault(_kind(name), []).append(name)
    return [name for group in kinds.values() for name in dict.fromkeys((group[0], group[-1]))]


def _kind(name: str) -> str:
    for kind, pattern in _KINDS.items():
        if re.fullmatch(pattern, name):
            return kind
    return "other"


def _edits_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = next(each for each in document["devices"] if each["name"] == name)
    edits: Mapping[str, Any] = found.get("containerEdits", {})
    return edits


def _every_edits(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield document.get("containerEdits", {})
    for device in document["devices"]:
        yield device.get("containerEdits", {})
