"""The machine's configuration as managed daemons and the command line need it."""

from dataclasses import dataclass
from pathlib import Path

from base.layout import Layout
from gate.repos import RepoFiles
from machine.core.settings import EngineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineConfig:
    """`cdi_spec_dirs` are the machine's specs in order of precedence, the last one wins."""

    engine: EngineSettings
    cdi_spec_dirs: tuple[Path, ...]


def load_machine_config(layout: Layout) -> MachineConfig:
    """Read gate.yaml; everything has a default, so it need not exist.

    Raises:
        MalformedError: it is there and cannot be understood.
        AccessError: it cannot be read.
    """
    config = RepoFiles(layout).gate_config()
    return MachineConfig(
        engine=EngineSettings.parse(config.engine),
        cdi_spec_dirs=tuple(Path(each) for each in config.cdi_spec_dirs) or (layout.cdi_spec_dir,),
    )
