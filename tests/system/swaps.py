"""Attempts to make a bind source mean something else after it was judged, and what they would reach.

Each is an attack on a daemon whose repo may write below a bind root; `Place.reached` says whether it worked.
"""

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engine import IMAGE, Docker

SECRET = "what no container may see"
NETWORK = ("--network", "none")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Place:
    """A bind root with a folder in it, and a host directory outside that holds a secret."""

    root: Path
    outside: Path

    @classmethod
    def make(cls, below: Path) -> "Place":
        place = cls(below / "ws", below / "outside")
        place.root.mkdir(exist_ok=True, parents=True)
        place.outside.mkdir(exist_ok=True)
        (place.outside / "secret").write_text(SECRET)
        return place

    def folder(self, name: str) -> Path:
        """A harmless folder below the root."""
        path = self.root / name
        path.mkdir()
        (path / "harmless").touch()
        return path

    def swap(self, path: Path) -> None:
        """What any container with the root mounted can do: a link in the place of a folder."""
        path.rename(path.with_name(f"{path.name}.was"))
        path.symlink_to(self.outside)

    @property
    def reached(self) -> list[str]:
        """What there is outside beside the secret: something was made by way of a link."""
        return sorted(entry.name for entry in self.outside.iterdir() if entry.name != "secret")


def exchange(one: Path, other: Path) -> None:
    """Swap two paths in one step, so that each always exists."""
    result = _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if result < 0:
        raise OSError(ctypes.get_errno(), "renameat2")


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Swap two paths as fast as one thread can."""
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            exchange(one, other)
            time.sleep(0.0001)  # so that what is raced gets a share of the machine

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def between_create_and_start(place: Place, create: Docker, start: Docker) -> str:
    """What a container sees whose source was swapped after its creation."""
    path = place.folder("created")
    create.ok("create", "--name", "created", *NETWORK, "-v", f"{path}:/m", IMAGE, "cat", "/m/secret")
    place.swap(path)
    done = start.run("start", "-a", "created")
    return done.stdout + done.stderr


def by_restart_policy(place: Place, docker: Docker, *, within_s: float = 6.0) -> str:
    """What a container sees that comes back by itself after its source was swapped from another container."""
    path = place.folder("kept")
    script = "cat /m/secret; while [ -e /m/harmless ] && [ ! -e /m/end ]; do sleep 0.1; done"
    attack = f"cd /w && mv kept kept.was && ln -s {place.outside} kept && touch kept.was/end"
    kept = ("-d", "--name", "kept", "--restart", "always", "-v", f"{path}:/m")
    docker.ok("run", *kept, *NETWORK, IMAGE, "sh", "-c", script)
    docker.ok("run", "--rm", *NETWORK, "-v", f"{place.root}:/w", IMAGE, "sh", "-c", attack)
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and SECRET not in docker.run("logs", "kept").stdout:
        state = docker.ok("inspect", "-f", "{{.State.Status}} {{.State.Error}}", "kept")
        if "mount source" in state:
            return state
        time.sleep(0.2)
    return docker.run("logs", "kept").stdout


def by_missing_source(place: Place, docker: Docker) -> str:
    """Let the daemon make a missing source by way of a link."""
    (place.root / "way").symlink_to(place.outside)
    return docker.run("run", "--rm", *NETWORK, "-v", f"{place.root}/way/made:/m", IMAGE, "true").stderr


def by_copying_out(place: Place, create: Docker, copy: Docker) -> str:
    """What `docker cp` brings out of a container whose source was swapped."""
    path = place.folder("out")
    create.ok("create", "--name", "out", *NETWORK, "-v", f"{path}:/m", IMAGE, "true")
    place.swap(path)
    done = copy.run("cp", "out:/m/secret", "-")
    return done.stdout + done.stderr


def by_copying_in(place: Place, create: Docker, copy: Docker) -> str:
    """Let `docker cp` write by way of a source that was swapped."""
    path = place.folder("in")
    create.ok("create", "--name", "in", *NETWORK, "-v", f"{path}:/m", IMAGE, "true")
    place.swap(path)
    return copy.run("cp", str(path.with_name("in.was") / "harmless"), "in:/m/copied").stderr


def by_racing(place: Place, create: Docker, start: Docker, *, times: int) -> tuple[int, int]:
    """Start again and again while the source is swapped; how often it started, and saw the secret."""
    path, link = place.folder("raced"), place.root / "link"
    link.symlink_to(place.outside)
    create.ok("create", "--name", "raced", *NETWORK, "-v", f"{path}:/m", IMAGE, "ls", "/m")
    started = seen = 0
    with swapping(path, link):
        for _ in range(times):
            done = start.run("start", "-a", "raced")
            started += done.returncode == 0
            seen += "secret" in done.stdout
    return started, seen
