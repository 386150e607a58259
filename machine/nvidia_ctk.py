"""Running NVIDIA's generator, and judging what it made before any daemon may see it.

Source: nvidia-ctk 1.14.6 to 1.20.0 (`cdi generate`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from base.errors import RefusedError
from cdi.core.library import Library
from cdi.core.spec import CRASH_CODES, Spec, engines_refusing, parse_spec
from cdi.core.stale import NVIDIA_KIND
from machine.core.inventory import Platform
from machine.engine import find_tool
from machine.programs import ProgramError, output_of
from machine.runtimes import version_of

PROGRAM = "nvidia-ctk"
TIMEOUT_S = 120.0
_SETTINGS_PREFIX = "NVIDIA_CTK_"
_CAUSES = (
    (
        "empty device edits",
        "a card has MIG on and no instances ('nvidia-smi mig -lgip'), or there is no card",
    ),
    (
        "failed to locate libcuda.so",
        "libraries and kernel driver have different versions: reboot, or reload the modules",
    ),
    ("failed to initialize NVML", "the driver does not answer: see 'nvidia-smi'"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """An installed nvidia-ctk; without a version it is not run."""

    path: Path
    version: str | None


def find_toolkit(environ: Mapping[str, str]) -> Toolkit | None:
    """The nvidia-ctk of this machine."""
    path = find_tool(PROGRAM, None, environ)
    return None if path is None else Toolkit(path=path, version=version_of(path, environ))


def generate(toolkit: Toolkit, platform: Platform, environ: Mapping[str, str]) -> bytes:
    """The machine's NVIDIA spec as the toolkit writes it.

    Raises:
        RefusedError: what it printed is no spec of `nvidia.com/gpu`.
        ProgramError: it failed.
    """
    if toolkit.version is None:
        raise ProgramError(
            f"{toolkit.path} does not tell its version", hint="install the NVIDIA container toolkit again"
        )
    command: list[str | Path] = [toolkit.path, "cdi", "generate", "--format=yaml"]
    if platform is Platform.WSL:
        command.append("--mode=wsl")
    # It reads each option from the environment too: an output file there would leave us without output.
    environment = {name: value for name, value in environ.items() if not name.startswith(_SETTINGS_PREFIX)}
    try:
        raw = output_of(command, environment, timeout_s=TIMEOUT_S)
    except ProgramError as exc:
        hint = next((words for text, words in _CAUSES if text in exc.message), "")
        raise ProgramError(exc.message, hint=hint) from exc
    spec = judge(raw, f"what {PROGRAM} {toolkit.version} made")
    if spec.kind != NVIDIA_KIND:
        raise RefusedError(f"{PROGRAM} made a spec of {spec.kind!r}, not of {NVIDIA_KIND}")
    return raw


def judge(raw: bytes, what: str) -> Spec:
    """The spec, which crashes no daemon and loads in current ones.

    Raises:
        RefusedError: it would crash a daemon, or the newest libraries do not load it.
    """
    refused = engines_refusing(raw)
    for library, problems in refused.items():
        if library.at_least(Library.V1_0_1) or any(each.code in CRASH_CODES for each in problems):
            words = "; ".join(each.message for each in problems[:3])
            raise RefusedError(f"{what} is not written: {library.engine} cannot load it: {words}")
    return parse_spec(raw)


def old_engines(raw: bytes) -> tuple[str, ...]:
    """The Docker releases that do not load the spec, for a word to the operator."""
    return tuple(library.engine for library in engines_refusing(raw))
