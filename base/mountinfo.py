"""The mounts of a process's namespace, as the kernel tells them. Pure.

Source: proc_pid_mountinfo(5); mount(8) for `nosymfollow` (Linux 5.10 and newer).
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MountEntry:
    """One mount. `point` is absolute in its namespace; `options` are the mount's, not its file system's."""

    id: int
    parent: int
    point: str
    options: frozenset[str]

    @property
    def follows_links(self) -> bool:
        """Whether a path that leads through it may hold symbolic links."""
        return "nosymfollow" not in self.options


def parse_mountinfo(raw: bytes) -> tuple[MountEntry, ...]:
    """The lines of a `mountinfo` file; lines that are none are left out."""
    found = []
    for line in raw.splitlines():
        fields = line.split(b" ")
        if len(fields) > 5 and fields[0].isdigit() and fields[1].isdigit():
            point = os.fsdecode(_ESCAPE.sub(lambda match: bytes((int(match[1], 8) & 255,)), fields[4]))
            options = frozenset(fields[5].decode("ascii", "replace").split(","))
            entry = MountEntry(id=int(fields[0]), parent=int(fields[1]), point=point, options=options)
            found.append(entry)
    return tuple(found)


def covers(point: str, path: str) -> bool:
    """Whether a clean absolute path is `point` or below it."""
    return path == point or path.startswith(point if point.endswith("/") else f"{point}/")


def link_free(path: str, mounts: Iterable[MountEntry]) -> bool:
    """Whether the kernel follows no link on the last part of the way to a clean absolute path.

    The way enters a mount that refuses links, and from there on only such mounts. Links before that mount are
    followed: whoever set it up answers for them.
    """
    free = False
    for mount in way(path, mounts):
        if mount.follows_links and free:
            return False
        free = not mount.follows_links
    return free


def way(path: str, mounts: Iterable[MountEntry]) -> Iterator[MountEntry]:
    """The mounts that a look-up of a clean absolute path without links enters, in order."""
    covering = [mount for mount in mounts if covers(mount.point, path)]
    known = {mount.id for mount in covering}
    here = next((mount for mount in covering if mount.parent not in known or mount.parent == mount.id), None)
    while here is not None:
        yield here
        covering.remove(here)
        above = here.id
        # Of several the shortest is met first; what is mounted below it has another parent.
        here = min(
            (mount for mount in covering if mount.parent == above),
            key=lambda mount: len(mount.point),
            default=None,
        )
