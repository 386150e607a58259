"""Whether the machine's spec files fit the machine as it is now."""

import os
from dataclasses import dataclass
from pathlib import Path

from base.layout import Layout
from cdi.core.library import Library
from cdi.core.stale import REMEDIES, Stale, StaleCode, leftovers, stale
from cdi.directories import load_files
from machine.config import load_machine_config
from machine.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFault:
    """What is wrong with a spec and what to do; `blocks` when starts with its devices fail or go astray."""

    code: str
    detail: str
    remedy: str
    blocks: bool


def spec_faults(layout: Layout) -> tuple[SpecFault, ...]:
    """What no longer fits in the specs that load, in their order.

    Raises:
        RdcError: gate.yaml cannot be read.
    """
    hardware = Hardware(layout.host)
    dirs = load_machine_config(layout).cdi_spec_dirs
    passing = layout.root / "var/run/cdi"
    known = {os.path.realpath(each) for each in dirs}
    more = () if os.path.realpath(passing) in known else (passing,)
    # The newest library's rules: a leftover counts for whichever engine reads it.
    files, _errors = load_files((*dirs, *more), library=Library.V1_1_0)
    ours = [str(each) for each in dirs if not _gone_after_reboot(each)]
    read = [file for file in files if not file.path.startswith(f"{passing}/") or not more]
    found = (
        *stale(read, hardware.probe, driver_version=hardware.nvidia_driver()),
        *leftovers(files, ours),
    )
    return tuple(_fault(each) for each in found)


def _gone_after_reboot(directory: Path) -> bool:
    """Whether it is `/run/cdi` or `/var/run/cdi`, where tools leave specs and later specs win."""
    return directory.parts[-2:] == ("run", "cdi")


def _fault(found: Stale) -> SpecFault:
    return SpecFault(
        code=found.code.value,
        detail=f"{found.path}: {_WORDS[found.code]}{found.detail}",
        remedy=REMEDIES[found.code],
        blocks=found.code is not StaleCode.LEFTOVER,
    )


_WORDS = {
    StaleCode.NODE_MISSING: "it names device nodes that are not there: ",
    StaleCode.NODE_CHANGED: "device nodes have changed: ",
    StaleCode.MOUNT_MISSING: "it mounts files that are not there: ",
    StaleCode.HOOK_MISSING: "it runs programs that are not there: ",
    StaleCode.DRIVER_CHANGED: "",
    StaleCode.LEFTOVER: "",
}
