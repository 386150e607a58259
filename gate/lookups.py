"""Answers what a decision asks: the daemon about what it holds and can do, the host about paths."""

import asyncio
import os
import stat
from collections.abc import Iterable
from dataclasses import replace

from base.errors import RdcError
from gate.core.facts import BuilderFact, ContainerFact, ExecFact, PathFact, PathType, ViewFact, VolumeFact
from gate.core.policy import (
    BuilderLookup,
    ContainerLookup,
    ExecLookup,
    Fact,
    Lookup,
    PathLookup,
    ViewLookup,
    VolumeLookup,
)
from gate.daemon import DaemonClient
from gate.local_daemon import daemon_mounts, empty_spec_dirs


class Answers:
    """What was found out for one request.

    `facts` only ever grows. A question that could not be answered is never asked again and has no fact, and
    the decision refuses what depends on it; `failures` tells why.
    """

    def __init__(self, daemon: DaemonClient) -> None:
        self._daemon = daemon
        self.facts: dict[Lookup, Fact] = {}
        self.failures: dict[Lookup, RdcError] = {}

    async def ask(self, wanted: Iterable[Lookup]) -> bool:
        """Answer these questions, all at once; False when there is nothing left to ask."""
        new = [each for each in wanted if each not in self.facts and each not in self.failures]
        if not new:
            return False
        async with asyncio.TaskGroup() as group:
            for each in new:
                group.create_task(self._one(each))
        return True

    async def _one(self, lookup: Lookup) -> None:
        try:
            self.facts[lookup] = await self._answer(lookup)
        except RdcError as exc:
            self.failures[lookup] = exc

    async def _answer(self, lookup: Lookup) -> Fact:
        match lookup:
            case ContainerLookup(ref=ref):
                container = await self._daemon.container(ref)
                return None if container is None else ContainerFact.parse(container)
            case VolumeLookup(name=name):
                volume = await self._daemon.volume(name)
                return None if volume is None else VolumeFact.parse(volume)
            case ExecLookup(ref=ref):
                exec_ = await self._daemon.exec_(ref)
                return None if exec_ is None else ExecFact.parse(exec_)
            case BuilderLookup():
                return await self._builder()
            case ViewLookup():
                return ViewFact(mounts=await asyncio.to_thread(daemon_mounts, self._daemon.socket))
            case PathLookup(path=path):
                # In a thread: a bind source may lie on a network file system that does not answer.
                return await asyncio.to_thread(path_fact, path)

    async def _builder(self) -> BuilderFact:
        fact = BuilderFact.parse(await self._daemon.info())
        if not fact.spec_dirs:
            return fact
        empty = await asyncio.to_thread(empty_spec_dirs, self._daemon.socket, list(fact.spec_dirs))
        return replace(fact, spec_dirs=tuple(each for each in fact.spec_dirs if each not in empty))


def path_fact(path: str) -> PathFact:
    """The path with every symbolic link followed, and what is there.

    A chain of links without an end resolves to a link, which counts as neither file nor directory.
    """
    real = os.path.realpath(path)
    try:
        mode = os.lstat(real).st_mode
    except FileNotFoundError:
        return PathFact(realpath=real, type_=PathType.MISSING)
    except (OSError, ValueError):
        return PathFact(realpath=real, type_=PathType.OTHER)
    return PathFact(realpath=real, type_=_TYPES.get(stat.S_IFMT(mode), PathType.OTHER))


_TYPES = {
    stat.S_IFDIR: PathType.DIRECTORY,
    stat.S_IFREG: PathType.FILE,
    stat.S_IFSOCK: PathType.SOCKET,
    stat.S_IFCHR: PathType.DEVICE,
    stat.S_IFBLK: PathType.DEVICE,
}
