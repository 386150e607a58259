"""The container programs of the machine and what they say of themselves."""

from collections.abc import Mapping
from pathlib import Path

from machine.core.inventory import Gvisor, Runtime
from machine.core.versions import program_version, supported_drivers
from machine.engine import find_tool
from machine.programs import ProgramError, output_of

PROGRAMS = ("dockerd", "containerd", "runc", "runsc")
_TIMEOUT_S = 20.0


def find_runtimes(engine_dir: Path | None, environ: Mapping[str, str]) -> tuple[Runtime, ...]:
    """Those of `PROGRAMS` that managed daemons would find, in that order."""
    found = ((name, find_tool(name, engine_dir, environ)) for name in PROGRAMS)
    return tuple(
        Runtime(name=name, path=str(path), version=version_of(path, environ))
        for name, path in found
        if path is not None
    )


def gvisor(runtimes: tuple[Runtime, ...], environ: Mapping[str, str]) -> Gvisor | None:
    """What the found runsc serves; no drivers when it is too old to tell."""
    runsc = next((each for each in runtimes if each.name == "runsc"), None)
    if runsc is None:
        return None
    try:
        listed = output_of((runsc.path, "nvproxy", "list-supported-drivers"), environ, timeout_s=_TIMEOUT_S)
    except ProgramError:
        listed = b""
    return Gvisor(version=runsc.version, nvproxy_drivers=supported_drivers(listed.decode("utf-8", "replace")))


def version_of(program: Path, environ: Mapping[str, str]) -> str | None:
    """What `--version` tells."""
    try:
        return program_version(
            output_of((program, "--version"), environ, timeout_s=_TIMEOUT_S).decode("utf-8", "replace")
        )
    except ProgramError:
        return None
