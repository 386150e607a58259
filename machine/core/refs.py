"""Repo references as people write them: `name`, `name@machine` or a GUID. Pure.

Source: design section 2. A ref that is ambiguous or contradicts the machine is an error that lists the
candidates, never a guess.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from base.errors import NotFoundError, UsageError

LOCAL = "local"
"""The machine that the command runs on; the only one that is reachable without `machines.yaml`."""

_MACHINE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\Z")
_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_NEAR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoRef:
    """What stood on the command line; `machine` is None when none was named."""

    name: str
    machine: str | None = None

    @classmethod
    def parse(cls, text: str) -> "RepoRef":
        """Read `name[@machine]`; whether the repo exists is not looked at.

        Raises:
            UsageError: it is not of that form.
        """
        name, at, machine = text.partition("@")
        if not name or (at and not _MACHINE.match(machine)):
            raise UsageError(f"malformed repo reference '{text}'", hint="write it as NAME or NAME@MACHINE")
        return cls(name=name, machine=machine if at else None)

    @property
    def is_guid(self) -> bool:
        """Whether the name is a repo's GUID; no repo name can look like one, being at most 32 long."""
        return _GUID.match(self.name) is not None

    def __str__(self) -> str:
        return self.name if self.machine is None else f"{self.name}@{self.machine}"


def require_local(ref: RepoRef, names: Iterable[str]) -> None:
    """Refuse a ref to a machine other than this one, listing what was possibly meant.

    Args:
        ref: the reference.
        names: the repos of this machine.

    Raises:
        NotFoundError: the ref names another machine.
    """
    if ref.machine is None or ref.machine == LOCAL:
        return
    candidates = candidates_for(ref.name, tuple(names))
    hint = f"only '@{LOCAL}' is known here; " + (
        f"did you mean {' or '.join(candidates)}?" if candidates else "run the command on that machine"
    )
    raise NotFoundError(f"machine '{ref.machine}' of repo reference '{ref}' is not known", hint=hint)


def candidates_for(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """The full refs that someone who wrote `name` may have meant: itself if it exists, else near names."""
    found = (name,) if name in names else tuple(difflib.get_close_matches(name, names, n=_NEAR, cutoff=0.6))
    return tuple(f"{each}@{LOCAL}" for each in found)


def unknown_repo(name: str, names: Sequence[str]) -> NotFoundError:
    """The error for a repo that does not exist, with near names or all names when they are few."""
    near = candidates_for(name, names)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif names:
        hint = "'rdc repo list' shows the repos of this machine"
    else:
        hint = f"there are no repos yet; 'rdc repo create {name}' makes one"
    return NotFoundError(f"there is no repo '{name}'", hint=hint)
