"""What a daemon must be like so that a gate before it means something, judged from `GET /info`. Pure.

A managed daemon fulfils all of it by construction; this is for daemons that exist. Source: `DefaultRuntime`,
`Runtimes`, `Swarm`, `ExperimentalBuild` and `Warnings` of the Docker Engine API; a default runtime that
brings GPUs by an image's environment shows in no request (moby, `nvidia-container-runtime`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

PLAIN_RUNTIMES = frozenset({"runc", "io.containerd.runc.v2"})
"""Runtimes that give a container what the request says and nothing else."""

_HARDWARE = re.compile(r"nvidia|amd|habana|kata|sysbox", re.IGNORECASE)
_OPEN_LISTENER = "API is accessible on"


class Precondition(StrEnum):
    """Stable codes."""

    DEFAULT_RUNTIME = "default-runtime"
    OPEN_LISTENER = "open-listener"
    HARDWARE_RUNTIME = "hardware-runtime"
    SWARM = "swarm"
    EXPERIMENTAL = "experimental"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """One precondition that does not hold.

    `fatal`: hardware or the host can be reached past the gate, whatever it refuses. The others are a second
    line of defence that is missing: the gate refuses their use itself.
    """

    precondition: Precondition
    fatal: bool
    detail: str
    remedy: str


def unmet(info: Mapping[str, object]) -> tuple[Unmet, ...]:
    """What does not hold, the fatal ones first; members that the daemon does not name are harmless."""
    return tuple(sorted(_unmet(info), key=lambda each: not each.fatal))


def _unmet(info: Mapping[str, object]) -> Iterator[Unmet]:
    default = info.get("DefaultRuntime")
    if isinstance(default, str) and default not in PLAIN_RUNTIMES:
        yield Unmet(
            precondition=Precondition.DEFAULT_RUNTIME,
            fatal=True,
            detail=f"its default runtime is {default!r}, which may add devices that no request names",
            remedy='set "default-runtime": "runc" in its daemon.json and restart it',
        )
    warnings = info.get("Warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        if isinstance(warning, str) and _OPEN_LISTENER in warning:
            yield Unmet(
                precondition=Precondition.OPEN_LISTENER,
                fatal=True,
                detail=f"it can be reached past the gate: {warning.strip()}",
                remedy='leave only its unix socket in "hosts" of its daemon.json and restart it',
            )
    yield from _second_line(info)


def _second_line(info: Mapping[str, object]) -> Iterator[Unmet]:
    runtimes = info.get("Runtimes")
    hardware = sorted(filter(_HARDWARE.search, map(str, runtimes))) if isinstance(runtimes, Mapping) else []
    if hardware:
        yield Unmet(
            precondition=Precondition.HARDWARE_RUNTIME,
            fatal=False,
            detail=f"it has runtimes that bring hardware: {', '.join(hardware)}",
            remedy='take them out of "runtimes" in its daemon.json: CDI needs none',
        )
    swarm = info.get("Swarm")
    if isinstance(swarm, Mapping) and swarm.get("LocalNodeState") not in (None, "", "inactive"):
        yield Unmet(
            precondition=Precondition.SWARM,
            fatal=False,
            detail="it is part of a swarm, whose services start containers that the gate does not see",
            remedy="'docker swarm leave --force' on its own socket",
        )
    if info.get("ExperimentalBuild") is True:
        yield Unmet(
            precondition=Precondition.EXPERIMENTAL,
            fatal=False,
            detail="its experimental features are on",
            remedy='set "experimental": false in its daemon.json and restart it',
        )
