"""The order in which a spec directory turns from what it holds into what it should hold. Pure.

A daemon reads the directory at any moment in between. CDI makes a name that two files of one directory define
unresolvable (source: its `pkg/cdi/cache.go`), so a name must be in exactly one file at each step.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cdi.core.names import QualifiedName


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """A file's bytes and the names that it defines for a daemon.

    Content None stands for what lies there but is no file as we would write it: it is never right as it is.
    """

    content: bytes | None
    devices: frozenset[QualifiedName]


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the file."""

    name: str


@dataclass(frozen=True, slots=True)
class Write:
    """Put these bytes there in one step, in place of what lies there."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Rename:
    """Give the file another name in one step."""

    name: str
    to: str


Step = Remove | Write | Rename


def plan(present: Mapping[str, SpecFile], wanted: Mapping[str, SpecFile]) -> tuple[Step, ...]:
    """The steps by file name, none when the directory is right already.

    What takes names away comes first, so that no step adds a name that is not wanted. A name that stays is
    replaced within its file; when its file gets another name, the new content goes over the old file, which
    is then renamed. Only a name that goes from one file to another while both stay is missing between two
    steps. The files that are wanted have their content and define no name twice.
    """
    stale = {name: file.devices for name, file in present.items() if name not in wanted}
    new = {name: file.devices for name, file in wanted.items() if name not in present}
    changed = [name for name in wanted if name in present and present[name].content != wanted[name].content]
    moves = _moves(stale, new)
    steps: list[Step] = [Remove(name) for name in sorted(stale) if name not in moves.values()]
    changed.sort(key=lambda name: (present[name].devices <= wanted[name].devices, name))
    steps += [Write(name, wanted[name].content or b"") for name in changed]
    steps += [Write(moves.get(name, name), wanted[name].content or b"") for name in sorted(new)]
    steps += [Rename(old, name) for name, old in sorted(moves.items())]
    return tuple(steps)


def _moves(
    stale: Mapping[str, frozenset[QualifiedName]], new: Mapping[str, frozenset[QualifiedName]]
) -> Mapping[str, str]:
    """For new files that have names of one that goes, the one with most of them."""
    moves: dict[str, str] = {}
    free = dict(stale)
    for name, devices in sorted(new.items()):
        old = max(sorted(free), key=lambda each: len(free[each] & devices), default=None)
        if old is not None and free[old] & devices:
            moves[name] = old
            del free[old]
    return moves
