"""The gate's own calls to the daemon behind it: inspecting containers, volumes, images and execs.

These are questions the gate asks for itself, on connections of its own, never on a client's.

Source: Docker Engine API 1.44 to 1.51. No question is a stream, so that few connections serve any number of
questions: one request may name hundreds of volumes, and each open connection is a file descriptor that all
repos share.
"""

from pathlib import Path
from urllib.parse import quote

import aiohttp
import jiter

from base.errors import MalformedError, UnreachableError

ANSWER_LIMIT_BYTES = 16 * 1024 * 1024
CALL_TIMEOUT_S = 30.0
MAX_CONNECTIONS = 32


class DaemonClient:
    """Asks one daemon over its unix socket.

    Must be made and used inside a running event loop; `close()` when done.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
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
            raise UnreachableError(f"what listens on {self._socket} is not a Docker daemon: it has no /info")
        return answer

    async def close(self) -> None:
        """Close the connections that are kept for the next question."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, path: str) -> dict[str, object] | None:
        """One JSON object, or None for 404.

        Raises:
            UnreachableError: nobody answers, the answer is an error, or it takes too long.
        """
        try:
            async with self._open().get(f"http://docker{path}", allow_redirects=False) as response:
                body = await response.content.read(ANSWER_LIMIT_BYTES + 1)
                while len(body) <= ANSWER_LIMIT_BYTES and not response.content.at_eof():
                    body += await response.content.read(ANSWER_LIMIT_BYTES + 1 - len(body))
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            reason = str(exc) or type(exc).__name__
            raise UnreachableError(
                f"the daemon behind the gate does not answer: {reason}",
                hint="the operator can look at it with 'rdc repo show'",
            ) from exc
        if response.status == 404:
            return None
        if response.status != 200:
            raise UnreachableError(f"the daemon answered {response.status} to the gate's question {path}")
        return _object(body, path)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(str(self._socket), limit=MAX_CONNECTIONS),
                timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session


def _object(body: bytes, path: str) -> dict[str, object]:
    if len(body) > ANSWER_LIMIT_BYTES:
        raise MalformedError(f"the daemon's answer to {path} is larger than {ANSWER_LIMIT_BYTES} bytes")
    try:
        value = jiter.from_json(body)
    except ValueError as exc:
        raise MalformedError(f"the daemon's answer to {path} is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise MalformedError(f"the daemon's answer to {path} is not a JSON object")
    return value
