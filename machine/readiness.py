"""Whether the daemon behind a repo's gate can resolve the devices it was just granted, or why not.

Source: `GET /info` of engines 25 to 29 (see `machine.core.engine_info`); a spec renamed into a directory was
seen by dockerd 28.5.2 after 8 to 19 ms.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from base.clock import Clock
from base.errors import RdcError, UnreachableError
from machine.core.engine_info import EngineInfo
from machine.docker import Daemon

TIMEOUT_S = 5.0
_POLL_S = 0.02


class State(StrEnum):
    """What could be found out."""

    READY = "ready"
    UNLISTED = "unlisted"
    """The daemon reads the projection but is too old to list what it finds there."""
    UNREACHABLE = "unreachable"
    CDI_OFF = "cdi-off"
    OTHER_SPEC_DIRS = "other-spec-dirs"
    NOT_SEEN = "not-seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What the daemon can do, with what to tell the operator; `detail` and `remedy` may be empty."""

    state: State
    detail: str = ""
    remedy: str = ""

    @property
    def resolvable(self) -> bool | None:
        """True and False are certain; None when the daemon cannot tell or does not answer."""
        match self.state:
            case State.READY:
                return True
            case State.UNLISTED | State.UNREACHABLE:
                return None
            case State.CDI_OFF | State.OTHER_SPEC_DIRS | State.NOT_SEEN:
                return False


def await_readiness(
    daemon: Daemon,
    spec_dir: Path,
    devices: Collection[str],
    clock: Clock,
    *,
    timeout_s: float = TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Readiness:
    """Ask until the daemon lists all the devices, or until it is certain that waiting does not help.

    Args:
        daemon: the one behind the gate.
        spec_dir: the repo's projection.
        devices: qualified names that the projection holds.
        clock: measures the waiting.
        timeout_s: how long to wait at most.
        sleep: pauses between two questions.
    """
    deadline = clock.monotonic_s() + timeout_s
    while True:
        try:
            info = daemon.info()
        except RdcError as exc:
            remedy = "" if isinstance(exc, UnreachableError) else exc.hint
            return Readiness(state=State.UNREACHABLE, detail=exc.message, remedy=remedy)
        found = judge(info, spec_dir, devices)
        if found.state is not State.NOT_SEEN or clock.monotonic_s() >= deadline:
            return found
        sleep(_POLL_S)


def judge(info: EngineInfo, spec_dir: Path, devices: Collection[str]) -> Readiness:
    """What one answer to `GET /info` says about the devices."""
    if not info.cdi_spec_dirs:
        return Readiness(
            state=State.CDI_OFF,
            detail=f"CDI is off in Docker {info.version}",
            remedy=f'set "features": {{"cdi": true}} and "cdi-spec-dirs": ["{spec_dir}"] in its daemon.json'
            " and restart it",
        )
    directories = [Path(each) for each in info.cdi_spec_dirs]
    if not any(_same(each, spec_dir) for each in directories):
        return Readiness(
            state=State.OTHER_SPEC_DIRS,
            detail=f"the daemon reads CDI specs from {', '.join(info.cdi_spec_dirs)}, not from {spec_dir}",
            remedy=f'set "cdi-spec-dirs": ["{spec_dir}"] in its daemon.json and restart it',
        )
    others = [str(each) for each in directories if not _same(each, spec_dir)]
    note = f"the daemon also reads {', '.join(others)}, so that only the gate stops it" if others else ""
    remedy = f'leave only "{spec_dir}" in "cdi-spec-dirs" of its daemon.json' if others else ""
    if info.devices is None:
        return Readiness(state=State.UNLISTED, detail=note, remedy=remedy)
    missing = sorted(set(devices) - info.devices)
    if missing:
        said = "; ".join(each for each in info.warnings if "CDI" in each)
        return Readiness(
            state=State.NOT_SEEN,
            detail=f"the daemon does not list {', '.join(missing)}" + (f": {said}" if said else ""),
            remedy=f"look at its log, and at the files in {spec_dir}",
        )
    return Readiness(state=State.READY, detail=note, remedy=remedy)


def _same(one: Path, other: Path) -> bool:
    return one == other or one.resolve() == other.resolve()
