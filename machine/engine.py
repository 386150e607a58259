"""Finding the Docker engine that managed daemons run, and the tools it needs.

Order: `engine.dir` of gate.yaml, `$RDC_ENGINE_DIR`, the PATH with the usual system folders, and last what
`scripts/install-engine` brought beside a source checkout. A folder counts when it, or its `bin`, holds
dockerd.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from base.errors import NotFoundError, RefusedError
from machine.core.daemon_config import REQUIRED_TOOLS, TOOLS, check_engine, version_in

ENGINE_VARIABLE = "RDC_ENGINE_DIR"
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_VERSION_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine; `tools` maps program names to absolute paths and always has the required ones."""

    version: str
    dockerd: Path
    tools: Mapping[str, Path]


def find_engine(configured: Path | None, environ: Mapping[str, str]) -> Engine:
    """The engine to run.

    Args:
        configured: `engine.dir` of gate.yaml.
        environ: where `RDC_ENGINE_DIR` and `PATH` are read from.

    Raises:
        NotFoundError: there is no dockerd, or a tool that it cannot do without is missing.
        RefusedError: the dockerd is too old for CDI, or does not run here.
    """
    folders = search_folders(configured, environ)
    dockerd = _which("dockerd", folders)
    if dockerd is None:
        raise NotFoundError(
            "there is no dockerd on this machine",
            hint=f"install Docker 25 or newer, or run scripts/install-engine and set {ENGINE_VARIABLE}",
        )
    version = _version(dockerd)
    check_engine(version)
    # Tools that lie beside the engine belong to it; only what is missing there comes from the system.
    beside = (str(dockerd.parent), *folders)
    tools = {name: path for name in TOOLS if (path := _which(name, beside)) is not None}
    missing = [name for name in REQUIRED_TOOLS if name not in tools]
    if missing:
        raise NotFoundError(
            f"dockerd {version} at {dockerd} lacks {', '.join(missing)}", hint="install containerd and runc"
        )
    return Engine(version=version, dockerd=dockerd, tools=tools)


def search_folders(configured: Path | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folders to look in, in order; a configured or named engine folder shadows the system's."""
    named = environ.get(ENGINE_VARIABLE)
    first = [configured] if configured is not None else [Path(named)] if named else []
    cache = Path(environ.get("RDC_CACHE") or Path(__file__).resolve().parent.parent / ".cache")
    path = [folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    fallback = [cache / "engine" / "28"]
    return (*_with_bin(first), *path, *SYSTEM_PATH, *_with_bin(fallback))


def find_tool(name: str, configured: Path | None, environ: Mapping[str, str]) -> Path | None:
    """A program in the search folders, or None."""
    return _which(name, search_folders(configured, environ))


def _with_bin(folders: Sequence[Path]) -> tuple[str, ...]:
    return tuple(str(path) for folder in folders for path in (folder / "bin", folder))


def _which(name: str, folders: Sequence[str]) -> Path | None:
    found = shutil.which(name, path=":".join(folders))
    return Path(found).absolute() if found is not None else None


def _version(dockerd: Path) -> str:
    command = (str(dockerd), "--version")
    environment = {"PATH": ":".join((str(dockerd.parent), *SYSTEM_PATH)), "HOME": os.devnull}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=_VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise RefusedError(
            f"{dockerd} does not run on this machine",
            hint="install Docker 25 or newer, or run scripts/install-engine",
        ) from exc
    return version_in(done.stdout)
