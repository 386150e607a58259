"""The gate's own calls to the daemon behind it: questions, its events, and stopping containers.

These are questions the gate asks for itself, on connections of its own, never on a client's.

Source: Docker Engine API 1.44 to 1.51. No question is a stream, so that few connections serve any number of
questions: one request may name hundreds of volumes, and each open connection is a file descriptor that all
repos share.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import aiohttp
import jiter

from base.errors import MalformedError, UnreachableError

ANSWER_LIMIT_BYTES = 16 * 1024 * 1024
CALL_TIMEOUT_S = 30.0
MAX_CONNECTIONS = 32

_SUCCESS = frozenset({200, 204, 304})
_NOTHING_THERE = frozenset({404, 409})
_RUNNING = quote('{"status":["running","paused"]}', safe="")
_EVENTS = quote(
    '{"type":["container","daemon"],"event":["start","unpause","die","destroy","reload"]}', safe=""
)


class AnswerError(UnreachableError):
    """Something answers, but not with what Docker's API promises."""


class DaemonClient:
    """Asks one daemon over its unix socket.

    Must be made and used inside a running event loop; `close()` when done. `socket` is where it listens.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def container(self, ref: str) -> dict[str, object] | None:
        """`GET /containers/{ref}/json`; None when the daemon knows no such container."""
        return await self._get(f"/containers/{quote(ref, safe='')}/json")

    async def exec_(self, exec_id: str) -> dict[str, object] | None:
        """`GET /exec/{id}/json`; None when the daemon knows no such exec."""
        return await self._get(f"/exec/{quote(exec_id, safe='')}/json")

    async def volume(self, name: str) -> dict[str, object] | None:
        """`GET /volumes/{name}`; None when the daemon knows no such volume."""
        return await self._get(f"/volumes/{quote(name, safe='')}")

    async def info(self) -> dict[str, object]:
        """`GET /info`."""
        answer = await self._get("/info")
        if answer is None:
            raise AnswerError(f"what listens on {self.socket} is no Docker daemon: it has no /info")
        return answer

    async def version(self) -> dict[str, object]:
        """`GET /version`."""
        answer = await self._get("/version")
        if answer is None:
            raise AnswerError(f"what listens on {self.socket} is no Docker daemon: it has no /version")
        return answer

    async def close(self) -> None:
        """Close the connections that are kept for the next question."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def running(self) -> tuple[str, ...]:
        """The full ids of containers that run or are paused."""
        body = await self._ask("GET", f"/containers/json?filters={_RUNNING}")
        value = _decoded(body or b"", "/containers/json")
        if not isinstance(value, list):
            raise MalformedError("the daemon's answer to /containers/json is not a JSON array")
        return tuple(
            each["Id"] for each in value if isinstance(each, dict) and isinstance(each.get("Id"), str)
        )

    async def stop(self, container: str, grace_s: int) -> None:
        """SIGTERM, and SIGKILL after `grace_s`; returns when it has ended. One that does not run is fine."""
        await self._ask("POST", f"/containers/{quote(container, safe='')}/stop?t={grace_s}")

    async def kill(self, container: str) -> None:
        """SIGKILL; one that does not run any more is fine."""
        await self._ask("POST", f"/containers/{quote(container, safe='')}/kill")

    @asynccontextmanager
    async def events(self, since_ns: int = 0) -> AsyncIterator[AsyncIterator[bytes]]:
        """The daemon's stream of what containers start and end, as bytes in lines; ends when the daemon does.

        Args:
            since_ns: also what the daemon still knows since then; nanoseconds since 1970.

        Raises:
            UnreachableError: it cannot be opened; or, while it is read, it breaks off.
        """
        target = f"/events?filters={_EVENTS}"
        if since_ns:
            target += f"&since={since_ns // 10**9}.{since_ns % 10**9:09d}"
        try:
            timeout = aiohttp.ClientTimeout(total=None, connect=CALL_TIMEOUT_S)
            response = await self._open().get(
                f"http://docker{target}", timeout=timeout, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise _unreachable(exc) from exc
        async with response:
            if response.status != 200:
                raise AnswerError(f"the daemon answered {response.status} to the gate's question /events")
            yield _chunks(response)

    async def _get(self, path: str) -> dict[str, object] | None:
        """One JSON object, or None for 404.

        Raises:
            UnreachableError: nobody answers, the answer is an error, or it takes too long.
        """
        body = await self._ask("GET", path)
        return None if body is None else _object(body, path)

    async def _ask(self, method: str, path: str) -> bytes | None:
        """The body of a success, or None for 404 and for 409 (there is nothing to kill).

        Raises:
            UnreachableError: nobody answers, the answer is an error, or it takes too long.
        """
        url = f"http://docker{path}"
        try:
            async with self._open().request(method, url, allow_redirects=False) as response:
                body = await response.content.read(ANSWER_LIMIT_BYTES + 1)
                while len(body) <= ANSWER_LIMIT_BYTES and not response.content.at_eof():
                    body += await response.content.read(ANSWER_LIMIT_BYTES + 1 - len(body))
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise _unreachable(exc) from exc
        if response.status in _NOTHING_THERE:
            return None
        if response.status not in _SUCCESS:
            raise AnswerError(
                f"the daemon answered {response.status} to the gate's question {path.partition('?')[0]}"
            )
        return body

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(str(self.socket), limit=MAX_CONNECTIONS),
                timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session


def _unreachable(exc: Exception) -> UnreachableError:
    reason = str(exc) or type(exc).__name__
    return UnreachableError(
        f"the daemon behind the gate does not answer: {reason}",
        hint="the operator can look at it with 'rdc repo show'",
    )


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError, TimeoutError) as exc:
        raise _unreachable(exc) from exc


def _object(body: bytes, path: str) -> dict[str, object]:
    value = _decoded(body, path)
    if not isinstance(value, dict):
        raise MalformedError(f"the daemon's answer to {path} is not a JSON object")
    return value


def _decoded(body: bytes, path: str) -> object:
    if len(body) > ANSWER_LIMIT_BYTES:
        raise MalformedError(f"the daemon's answer to {path} is larger than {ANSWER_LIMIT_BYTES} bytes")
    try:
        value: object = jiter.from_json(body)
    except ValueError as exc:
        raise MalformedError(f"the daemon's answer to {path} is not JSON: {exc}") from exc
    return value
