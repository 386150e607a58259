"""The gate's server: one process, many repos, each on its own unix socket.

Repos come and go at run time. The server holds a reference to everything that listens: uvloop's servers stop
when nobody refers to them.
"""

import asyncio
import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from base.errors import UsageError
from gate.connection import ClientConnection
from gate.core.routes import match as match_route
from gate.limits import Limits
from gate.listener import close_listener, open_listener
from gate.metrics import GateMetrics
from gate.ports import Gatekeeper, Match, RepoEndpoint
from gate.repo import Repo, Service

_DRAIN_POLL_S = 0.02


@dataclass(slots=True)
class _Serving:
    repo: Repo
    server: asyncio.AbstractServer
    sock: socket.socket
    inode: int | None


class GateServer:
    """Serves repos until it is closed. All methods belong to the event loop that it runs on.

    Args:
        limits: the transport's bounds.
        match: the routes; another one than the gate's own only in tests.
    """

    def __init__(self, *, limits: Limits | None = None, match: Match = match_route) -> None:
        self._service = Service(match, limits or Limits())
        self._serving: dict[str, _Serving] = {}
        self._started = False

    @property
    def repos(self) -> tuple[str, ...]:
        """The GUIDs served now."""
        return tuple(self._serving)

    def endpoint(self, guid: str) -> RepoEndpoint | None:
        """What is served for this repo, or None."""
        serving = self._serving.get(guid)
        return None if serving is None else serving.repo.endpoint

    def metrics(self, guid: str) -> GateMetrics | None:
        """The repo's counters, which go on counting, or None."""
        serving = self._serving.get(guid)
        return None if serving is None else serving.repo.metrics

    @property
    def tasks(self) -> int:
        """Tasks that run now, for health and for tests that look for leaks."""
        return len(self._service.tasks)

    async def add_repo(self, endpoint: RepoEndpoint, gatekeeper: Gatekeeper) -> None:
        """Listen for this repo from now on; its socket exists when this returns.

        Raises:
            UsageError: the repo is served already, or its socket path is too long.
            RefusedError: something else is at the socket's path.
            NotFoundError: the socket's directory does not exist.
            AccessError: the socket cannot be made.
        """
        if endpoint.guid in self._serving:
            raise UsageError(f"repo {endpoint.guid} is served already")
        if not self._started:
            self._service.start()
            self._started = True
        self._serving[endpoint.guid] = await _listen(Repo(endpoint, gatekeeper, self._service))

    def listens(self, guid: str) -> bool:
        """Whether the repo's socket still lies at its path: whoever empties `/run` takes it away."""
        serving = self._serving.get(guid)
        return serving is not None and _inode_at(serving.repo.endpoint.socket) == serving.inode

    def rename(self, guid: str, name: str) -> None:
        """Call a served repo by another name from now on; nothing else changes for its connections."""
        repo = self._serving[guid].repo
        repo.endpoint = replace(repo.endpoint, name=name)

    async def listen_again(self, guid: str) -> None:
        """Make a served repo's socket anew where it is gone; connections that are open stay so.

        Raises:
            RefusedError: something else is at the socket's path.
            NotFoundError: the socket's directory does not exist.
            AccessError: the socket cannot be made.
        """
        old = self._serving[guid]
        self._serving[guid] = await _listen(old.repo)
        old.server.close()
        old.sock.close()

    async def remove_repo(self, guid: str, *, grace_s: float | None = None) -> None:
        """Stop listening for this repo; open requests get `grace_s` to end. Unknown GUIDs are ignored."""
        serving = self._serving.pop(guid, None)
        if serving is not None:
            await self._stop((serving,), grace_s)

    async def close(self, *, grace_s: float | None = None) -> None:
        """Stop serving: idle connections close now, others when answered or when the time is up."""
        serving = tuple(self._serving.values())
        self._serving.clear()
        await self._stop(serving, grace_s)
        self._service.stop()
        await self._service.tasks.close()

    async def _stop(self, stopping: tuple[_Serving, ...], grace_s: float | None) -> None:
        for one in stopping:
            one.server.close()
            close_listener(one.repo.endpoint.socket, one.sock, one.inode)
            one.repo.draining = True
        repos = [one.repo for one in stopping]
        loop = asyncio.get_running_loop()
        until = loop.time() + (self._service.limits.grace_s if grace_s is None else grace_s)
        while sum(map(_close_idle, repos)) and loop.time() < until:  # noqa: ASYNC110 - they end one by one
            await asyncio.sleep(_DRAIN_POLL_S)
        for repo in repos:
            for connection in tuple(repo.connections):
                connection.abort()
        while any(repo.connections for repo in repos):  # noqa: ASYNC110 - reported on the loop's next turns
            await asyncio.sleep(0)


async def _listen(repo: Repo) -> _Serving:
    endpoint = repo.endpoint
    sock = open_listener(endpoint.socket, mode=endpoint.socket_mode, gid=endpoint.gid)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: ClientConnection(repo), sock=sock)
    return _Serving(repo, server, sock, _inode_at(endpoint.socket))


def _inode_at(path: Path) -> int | None:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return None


def _close_idle(repo: Repo) -> int:
    """Close connections between two requests; returns how many are left."""
    for connection in tuple(repo.connections):
        if isinstance(connection, ClientConnection) and connection.idle:
            connection.close()
    return len(repo.connections)
