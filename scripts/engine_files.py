"""Lays out what an engine needs: finds binaries, makes them callable from one folder, writes the test image.

Standard library only: it runs before the virtual environment exists.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from debian_archive import SEARCH_PATH

PLUGINS = ("docker-compose", "docker-buildx")
PLUGIN_DIRS = (
    "usr/libexec/docker/cli-plugins",
    "usr/lib/docker/cli-plugins",
    "usr/local/lib/docker/cli-plugins",
)
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
GROUP = b"root:x:0:\nvideo:x:44:\nrender:x:992:\nnogroup:x:65534:\n"
BINARY_DIRS = ("usr/sbin", "usr/bin", "sbin", "bin")


def version_of(binary: Path | str) -> str | None:
    """The version a program prints of itself, or None when it does not run here (a libc too old, say)."""
    for flag in ("--version", "version"):
        try:
            done = subprocess.run(
                [binary, flag], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
        except OSError:
            return None
        match = re.search(r"\d+\.\d+\.\d+", done.stdout + done.stderr)
        if done.returncode == 0 and match:
            return match[0]
    return None


def on_machine(name: str) -> Path | None:
    """The machine's own binary or CLI plugin of that name."""
    if name in PLUGINS:
        places = [Path("/", folder, name) for folder in PLUGIN_DIRS]
        return next((place for place in places if os.access(place, os.X_OK)), None)
    # A shell that has read a slot's env.sh finds our own engine first, which is not the machine's.
    folders = [each for each in SEARCH_PATH.split(":") if not _is_slot(Path(each).resolve().parent)]
    found = shutil.which(name, path=":".join(folders))
    return Path(found) if found else None


def _is_slot(folder: Path) -> bool:
    return (folder / "engine.json").exists()


def in_root(root: Path, name: str) -> Path | None:
    """The unpacked binary or plugin of that name."""
    for folder in (*PLUGIN_DIRS, *BINARY_DIRS):
        place = root / folder / name
        if os.access(place, os.X_OK):
            return place
    return None


def own_binary(name: str) -> Path | None:
    """The machine's own; a busybox counts only when it is static, as it has to run inside an empty image."""
    found = on_machine(name)
    if found and name == "busybox":
        return None if "=>" in _ldd(found) else found
    return found


@contextmanager
def fresh(target: Path) -> Iterator[Path]:
    """A new folder beside ``target`` that takes its place only when the block succeeds."""
    building = target.with_name(f".new-{target.name}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        yield building
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    if target.exists():
        old = target.with_name(f".old-{target.name}")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    building.rename(target)


def wrap_or_link(binary: Path, place: Path, library_roots: Sequence[Path], *, applet: str = "") -> None:
    """Make ``binary`` callable as ``place``.

    ``place`` is ``<cache>/<installation>/bin/<name>``. A link does, unless the loader misses libraries or
    ``binary`` is a multi-call program whose ``applet`` its own name does not tell: then a small script that
    points it to the unpacked libraries (never to another libc: own-suite packages fit the one that is there).
    """
    place.unlink(missing_ok=True)
    folders = [folder for root in library_roots for folder in sorted(root.glob("usr/lib/*-linux-*"))]
    inside = binary.is_relative_to(place.parents[2])  # what lies in the cache is named relative to it
    target = os.path.relpath(binary, place.parent) if inside else str(binary)
    lacks_libraries = "not found" in _ldd(binary)
    if not lacks_libraries and not applet:
        place.symlink_to(target)
        return
    lines = ["#!/bin/sh", 'here=$(dirname "$(readlink -f "$0")")']
    for folder in folders:
        relative = f'"$here"/{os.path.relpath(folder, place.parent)}'
        if lacks_libraries:
            lines.append(f"export LD_LIBRARY_PATH={relative}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}")
        if (folder / "xtables").is_dir():
            lines.append(f"export XTABLES_LIBDIR={relative}/xtables")
    program = f'"$here"/{target}' if inside else target
    lines.append(f'exec {program} {applet + " " if applet else ""}"$@"')
    place.write_text("\n".join(lines) + "\n", encoding="utf-8")
    place.chmod(0o755)


def _ldd(binary: Path) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(["ldd", binary], check=False, capture_output=True, text=True, env=environment)
    return done.stdout if done.returncode == 0 else ""


def write_image(busybox: Path, target: Path) -> None:
    """The root file system of the test image: busybox, a link for each applet, and who root is."""
    if target.is_file():
        return
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    building = target.with_name(f".new-{target.name}")
    with tarfile.open(building, "w") as archive:
        for folder, mode in {"bin": 0o755, "etc": 0o755, "tmp": 0o1777, "root": 0o700}.items():
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        files = {
            "bin/busybox": (busybox.read_bytes(), 0o755),
            "etc/passwd": (PASSWD, 0o644),
            "etc/group": (GROUP, 0o644),
        }
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
        for applet in applets:
            if applet != "busybox":
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(entry)
    building.rename(target)
