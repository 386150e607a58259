"""A machine with cards for tests: CDI specs of our own making that need no hardware.

Like a real toolkit's spec, each card has a name by index and one by UUID, `all` opens every card, a MIG slice
opens its parent's node and two capability nodes, and control nodes are in the spec's own edits.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from base.layout import Layout
from cdi.core.catalog import Catalog
from cdi.directories import load_catalog
from cdi.probe import SystemProbe
from grants.core.machine import MachineView
from grants.core.model import RepoGuid

NOW = datetime(2026, 11, 30, 8, 0, 0, tzinfo=UTC)
A, B, C = RepoGuid("aaaaaaaa-0000-4000-8000-000000000001"), RepoGuid("b-2"), RepoGuid("c-3")
NAMES: Mapping[RepoGuid, str] = {A: "gpu-a", B: "gpu-b", C: "gpu-c"}


class StillClock:
    """A clock that stands until it is told to go."""

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def monotonic_s(self) -> float:
        return self._now.timestamp()

    def forward(self, **delta: float) -> None:
        self._now += timedelta(**delta)


def uuid(card: int) -> str:
    """The UUID of the nth card that exists."""
    return f"GPU-{card:08x}-1111-4222-8333-444444444444"


def node(path: str, major: int, minor: int) -> Mapping[str, object]:
    return {"path": path, "type": "c", "major": major, "minor": minor}


def device(name: str, *nodes: Mapping[str, object]) -> Mapping[str, object]:
    return {"name": name, "containerEdits": {"deviceNodes": list(nodes)}}


def spec(
    kind: str, devices: Sequence[Mapping[str, object]], common: Sequence[Mapping[str, object]] = ()
) -> bytes:
    """A spec as bytes; `common` are nodes in the spec's own edits."""
    document: dict[str, object] = {"cdiVersion": "0.5.0", "kind": kind, "devices": list(devices)}
    if common:
        document["containerEdits"] = {"deviceNodes": list(common)}
    return json.dumps(document).encode()


def nvidia(*cards: int, mig_of: int | None = None) -> bytes:
    """A spec whose nth index name is the card `cards[n]`; a card keeps its UUID wherever it is.

    `mig_of` gives this index one MIG slice, `<index>:0`.
    """
    nodes = [node(f"/dev/nvidia{index}", 195, index) for index in range(len(cards))]
    devices = [device(str(index), each) for index, each in enumerate(nodes)]
    devices += [device(uuid(card), each) for card, each in zip(cards, nodes, strict=True)]
    devices.append(device("all", *nodes))
    if mig_of is not None:
        caps = [node(f"/dev/nvidia-caps/nvidia-cap{n}", 236, n) for n in (21, 22)]
        devices.append(device(f"{mig_of}:0", nodes[mig_of], *caps))
    common = [node("/dev/nvidiactl", 195, 255), node("/dev/nvidia-uvm", 510, 0)]
    return spec("nvidia.com/gpu", devices, common)


def dri(*minors: int) -> bytes:
    """Render nodes of our own vendor, one device each; they have no UUID."""
    return spec(
        "rediacc.io/dri",
        [device(f"renderD{minor}", node(f"/dev/dri/renderD{minor}", 226, minor)) for minor in minors],
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """A root with specs, and what looks at it."""

    layout: Layout

    @property
    def probe(self) -> SystemProbe:
        return SystemProbe(self.layout.root)

    def write(self, **specs: bytes) -> None:
        """Put spec files `<name>.json` into the machine's spec directory."""
        self.layout.cdi_spec_dir.mkdir(parents=True, exist_ok=True)
        for name, content in specs.items():
            (self.layout.cdi_spec_dir / f"{name}.json").write_bytes(content)

    def catalog(self) -> Catalog:
        return load_catalog([self.layout.cdi_spec_dir])

    def view(self) -> MachineView:
        return MachineView(self.catalog(), self.probe)


def machine(root: Path, **specs: bytes) -> Machine:
    """A machine below `root` with these specs, two cards and a render node unless told otherwise."""
    made = Machine(Layout(root))
    made.write(**(specs or {"nvidia": nvidia(0, 1), "dri": dri(128, 129)}))
    return made
