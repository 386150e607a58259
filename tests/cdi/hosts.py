"""Stand-ins for the host, and short ways to make catalogs."""

from collections.abc import Mapping
from pathlib import Path

from cdi.core.catalog import Catalog, SpecFile
from cdi.core.library import Library
from cdi.core.paths import clean
from cdi.core.resolve import GpuInfo, HostNode, NotANode
from cdi.core.spec import parse_spec


class FakeProbe:
    """A host that holds what it was given: nodes by path, cards, PCI addresses by node numbers."""

    def __init__(
        self,
        nodes: Mapping[str, HostNode | NotANode] | None = None,
        gpus: tuple[GpuInfo, ...] = (),
        pci: Mapping[tuple[str, int, int], str] | None = None,
    ) -> None:
        self.nodes = dict(nodes or {})
        self._gpus = gpus
        self._pci = dict(pci or {})

    def lstat(self, path: str) -> HostNode | NotANode | None:
        return self.nodes.get(clean(path))

    def gpus(self) -> tuple[GpuInfo, ...]:
        return self._gpus

    def pci_of(self, node_type: str, major: int, minor: int) -> str | None:
        return self._pci.get((node_type, major, minor))


def character(major: int, minor: int, mode: int = 0o666) -> HostNode:
    return HostNode(type="c", major=major, minor=minor, mode=mode)


def catalog(*files: tuple[str, int, str], library: Library = Library.V1_0_1) -> Catalog:
    """A catalog of (path, priority, YAML)."""
    return Catalog.of(
        SpecFile(path=path, priority=priority, spec=parse_spec(text.encode(), library=library))
        for path, priority, text in files
    )


def shared_spec(path: Path | None) -> Catalog | None:
    """The catalog of one file of the shared corpora, None without them."""
    if path is None:
        return None
    spec = parse_spec(path.read_bytes(), library=Library.V1_1_0)
    return Catalog.of([SpecFile(path=str(path), priority=0, spec=spec)])


def gpus(uuids: Mapping[int, str], extra: str = "", top: str = "/dev/nvidiactl") -> str:
    """A spec like nvidia-ctk's: `0`, `1`, … and their UUIDs, and `all`."""
    nodes = {minor: f"{{path: /dev/nvidia{minor}, major: 195, minor: {minor}}}" for minor in uuids}
    named = [(str(minor), nodes[minor]) for minor in uuids]
    named += [(uuid, nodes[minor]) for minor, uuid in uuids.items() if uuid]
    named.append(("all", ", ".join(nodes.values())))
    lines = "".join(
        f"- {{name: '{name}', containerEdits: {{deviceNodes: [{opened}]}}}}\n" for name, opened in named
    )
    common = f"containerEdits: {{deviceNodes: [{{path: {top}}}]}}\n"
    return f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n{lines}{extra}{common}"
