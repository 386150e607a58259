"""Bringing a machine under management: look, generate specs, write them and the inventory.

Every file is judged before it is written, and written whole or not at all, the inventory last. Interrupted
anywhere it can be run again, and on a machine that stays as it is it writes the same files.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from base.clock import Clock
from base.errors import RdcError
from base.files import discard_unfinished, make_directory, read_bytes, remove_durably, write_atomic
from base.layout import Layout
from base.run_lock import held
from cdi.core.generate import AMD_KIND, DRI_KIND, NamedNode, amd_spec, dri_spec
from cdi.core.model import Spec
from cdi.core.resolve import HostNode
from cdi.core.spec import encode_spec
from cdi.core.stale import NVIDIA_KIND
from cdi.directories import load_catalog
from machine.config import load_machine_config
from machine.core.inventory import Card, Inventory, RenderNode, Vendor
from machine.detect import detect
from machine.hardware import KFD, Hardware
from machine.inventory import save
from machine.nvidia_ctk import Toolkit, find_toolkit, generate, judge, old_engines
from machine.spec_health import spec_faults

FILE_NAMES: Mapping[str, str] = {
    NVIDIA_KIND: "nvidia.yaml",
    DRI_KIND: "rediacc-dri.json",
    AMD_KIND: "rediacc-amd.json",
}
_TOOLKIT_HINT = "install nvidia-container-toolkit, then run setup again"


class Action(StrEnum):
    """What happened to a file."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """One file and what was done with it; `kind` is empty for the inventory."""

    path: Path
    kind: str
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is not as it should be; with `fatal` some devices cannot be granted, or grants cannot be used."""

    message: str
    hint: str
    fatal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupReport:
    """What setup found, wrote and could not do."""

    inventory: Inventory
    files: tuple[FileResult, ...]
    problems: tuple[Problem, ...]


def set_up(layout: Layout, clock: Clock, environ: Mapping[str, str]) -> SetupReport:
    """Look at the machine and write its specs and its inventory.

    Raises:
        RefusedError: another setup is at work.
        RdcError: gate.yaml cannot be read, or a file cannot be written.
    """
    config = load_machine_config(layout)
    make_directory(layout.run_dir)
    with held(layout.run_dir / "setup.lock", "a setup"):
        hardware, toolkit = Hardware(layout.host), find_toolkit(environ)
        engine_dir = None if config.engine.dir is None else Path(config.engine.dir)
        inventory = detect(hardware, clock, environ, engine_dir=engine_dir, toolkit=toolkit)
        problems = list(_hardware_problems(inventory))
        specs = _specs(inventory, hardware, toolkit, environ, problems)
        if not layout.cdi_spec_dir.is_dir():
            make_directory(layout.cdi_spec_dir)
        results = [
            FileResult(path=path, kind=kind, action=action)
            for kind, content in specs.items()
            if (action := _put(path := layout.cdi_spec_dir / FILE_NAMES[kind], content)) is not None
        ]
        before = _content(layout.inventory)
        discard_unfinished(layout.inventory)
        stored = save(layout, inventory)
        same = before == _content(layout.inventory)
        action = Action.UNCHANGED if same else Action.WRITTEN
        results.append(FileResult(path=layout.inventory, kind="", action=action))
    if layout.cdi_spec_dir not in config.cdi_spec_dirs:
        message = (
            f"gate.yaml names other spec directories than {layout.cdi_spec_dir}: the specs there do not count"
        )
        problems.append(Problem(message=message, hint="add it to cdi_spec_dirs", fatal=True))
    problems += _spec_problems(layout, config.cdi_spec_dirs)
    return SetupReport(inventory=stored, files=tuple(results), problems=tuple(problems))


def own_specs(inventory: Inventory, kfd: HostNode | None) -> Mapping[str, Spec | None]:
    """The specs of our own vendor for what was found, by kind; None where there is nothing to define."""
    nodes = {node.path: _named(Path(node.path).name, node) for node in inventory.render_nodes}
    cards = [card for card in inventory.gpus if card.vendor is Vendor.AMD]
    amd = [
        NamedNode(name=f"gpu{card.index}", path=card.render_node, node=nodes[card.render_node].node)
        for card in cards
        if card.render_node in nodes and card.render_node is not None
    ]
    return {
        DRI_KIND: dri_spec(nodes.values()),
        AMD_KIND: None if kfd is None else amd_spec(NamedNode(name="kfd", path=KFD, node=kfd), amd),
    }


def _named(name: str, node: RenderNode) -> NamedNode:
    host = HostNode(type="c", major=node.major, minor=node.minor, mode=node.mode, gid=node.gid)
    return NamedNode(name=name, path=node.path, node=host)


def _specs(
    inventory: Inventory,
    hardware: Hardware,
    toolkit: Toolkit | None,
    environ: Mapping[str, str],
    problems: list[Problem],
) -> dict[str, bytes | None]:
    """What each file should hold; None for one that should not be, no entry for one that is left alone."""
    kfd = hardware.probe.lstat(KFD)
    specs: dict[str, bytes | None] = {}
    for kind, spec in own_specs(inventory, kfd if isinstance(kfd, HostNode) else None).items():
        specs[kind] = None if spec is None else encode_spec(spec)
    if inventory.nvidia is not None and inventory.nvidia.fault is None and _usable(inventory.gpus):
        try:
            if toolkit is None:
                message = "NVIDIA cards are there and nvidia-ctk is not: no spec of them can be made"
                problems.append(Problem(message=message, hint=_TOOLKIT_HINT, fatal=True))
            else:
                specs[NVIDIA_KIND] = generate(toolkit, inventory.platform, environ)
        except RdcError as exc:
            message = f"the NVIDIA spec is as it was: {exc.message}"
            problems.append(Problem(message=message, hint=exc.hint, fatal=True))
    for kind, content in specs.items():
        if content is None:
            continue
        judge(content, f"the spec of {kind}")
        old = old_engines(content)
        if old:
            message = f"the spec of {kind} is not read by {', '.join(old)}"
            problems.append(
                Problem(message=message, hint="use Docker 28.2 or newer for its devices", fatal=False)
            )
    return specs


def _usable(cards: tuple[Card, ...]) -> bool:
    return any(card.vendor is Vendor.NVIDIA and card.fault is None for card in cards)


def _put(path: Path, content: bytes | None) -> Action | None:
    """Make the file hold `content`, or not be; what is so already is left alone."""
    discard_unfinished(path)
    before = _content(path)
    if before == content:
        return None if content is None else Action.UNCHANGED
    if content is None:
        remove_durably(path)
        return Action.REMOVED
    write_atomic(path, content)
    return Action.WRITTEN


def _content(path: Path) -> bytes | None:
    try:
        return read_bytes(path)
    except RdcError:
        return None


def _hardware_problems(inventory: Inventory) -> Iterator[Problem]:
    nvidia = inventory.nvidia
    if nvidia is not None and nvidia.fault is not None:
        yield Problem(message=f"NVML: {nvidia.fault.message}", hint="", fatal=True)
    for card in inventory.gpus:
        if card.fault is not None and (nvidia is None or card.fault != nvidia.fault):
            yield Problem(message=f"{describe(card)}: {card.fault.message}", hint="", fatal=False)
    for remark in inventory.remarks:
        yield Problem(message=remark, hint="", fatal=False)


def describe(card: Card) -> str:
    """The card in a few words: what it is called, and where it is."""
    which = "card" if card.index is None else f"card {card.index}"
    at = card.pci or card.uuid
    return f"{which} ({at})" if at else which


def _spec_problems(layout: Layout, dirs: tuple[Path, ...]) -> Iterator[Problem]:
    for path, messages in sorted(load_catalog(dirs).errors.items()):
        hint = f"'renet cdi validate {path}' shows where; remove one of two files that define the same"
        yield Problem(message=f"{path}: {'; '.join(messages)}", hint=hint, fatal=True)
    for fault in spec_faults(layout):
        yield Problem(message=fault.detail, hint=fault.remedy, fatal=fault.blocks)
