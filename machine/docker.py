"""Small questions to a Docker daemon over its unix socket, with nothing but the standard library.

For the command line, where loading an asynchronous client would cost more than the question; the gate has
its own.
"""

import http.client
import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from base.errors import MalformedError, UnreachableError
from machine.core.engine_info import EngineInfo, Holder, decode_ids, decode_object, holder

ANSWER_LIMIT_BYTES = 16 * 1024 * 1024
TIMEOUT_S = 5.0
_RUNNING = quote('{"status":["running","paused","restarting"]}')
_STOP_GRACE_S = 10


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection whose peer is a unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("docker", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Daemon:
    """One daemon, asked afresh each time."""

    def __init__(self, path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s

    def answers(self) -> bool:
        """Whether `GET /_ping` gives 200."""
        try:
            return self._call("GET", "/_ping")[0] == http.client.OK
        except UnreachableError:
            return False

    def accepts(self) -> bool:
        """Whether somebody listens on the socket, whatever they would answer."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(self._timeout_s)
                link.connect(str(self._path))
        except OSError:
            return False
        return True

    def counts(self) -> tuple[int, int]:
        """How many containers and images it has.

        Raises:
            UnreachableError: nobody answers, or not with 200.
            MalformedError: the answer is not a Docker daemon's.
        """
        info = decode_object(self._get("/info"))
        containers, images = info.get("Containers"), info.get("Images")
        if not isinstance(containers, int) or not isinstance(images, int):
            raise MalformedError("the answer to GET /info does not count containers and images")
        return containers, images

    def info(self) -> EngineInfo:
        """`GET /info`.

        Raises:
            UnreachableError: nobody answers, or not with 200.
            MalformedError: the answer is not a Docker daemon's.
        """
        return EngineInfo.parse(self._get("/info"))

    def holders(self, devices: Iterable[str]) -> tuple[Holder, ...]:
        """Running, paused and restarting containers that asked for one of these CDI devices.

        Raises:
            UnreachableError: nobody answers.
            MalformedError: the answer is not a Docker daemon's.
        """
        wanted = frozenset(devices)
        found = []
        for identity in decode_ids(self._get(f"/containers/json?filters={_RUNNING}")):
            status, body = self._call("GET", f"/containers/{identity}/json")
            if status == http.client.NOT_FOUND:
                continue  # it ended between the two questions
            self._expect(status, body, f"/containers/{identity}/json")
            each = holder(body)
            if wanted.intersection(each.devices):
                found.append(each)
        return tuple(found)

    def stop(self, container: str) -> None:
        """Stop a container: SIGTERM, and SIGKILL ten seconds later; one that has ended is fine.

        Raises:
            UnreachableError: the daemon does not answer, or could not stop it.
        """
        target = f"/containers/{quote(container, safe='')}/stop?t={_STOP_GRACE_S}"
        status, body = self._call("POST", target, timeout_s=self._timeout_s + 2 * _STOP_GRACE_S)
        if status not in (http.client.NO_CONTENT, http.client.NOT_MODIFIED, http.client.NOT_FOUND):
            self._expect(status, body, target)

    def _get(self, target: str) -> bytes:
        status, body = self._call("GET", target)
        self._expect(status, body, target)
        return body

    def _expect(self, status: int, body: bytes, target: str) -> None:
        if status != http.client.OK:
            said = body[:200].decode(errors="replace").strip()
            raise UnreachableError(
                f"the daemon at {self._path} answers {status} to {target.partition('?')[0]}: {said}"
            )

    def _call(self, method: str, target: str, *, timeout_s: float | None = None) -> tuple[int, bytes]:
        connection = _UnixConnection(self._path, self._timeout_s if timeout_s is None else timeout_s)
        try:
            connection.request(method, target)
            response = connection.getresponse()
            body = response.read(ANSWER_LIMIT_BYTES + 1)
        except (OSError, http.client.HTTPException) as exc:
            reason = (
                exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc) or type(exc).__name__
            )
            raise UnreachableError(f"no Docker daemon answers at {self._path}: {reason}") from exc
        finally:
            connection.close()
        if len(body) > ANSWER_LIMIT_BYTES:
            raise MalformedError(
                f"the daemon at {self._path} answers with more than {ANSWER_LIMIT_BYTES} bytes"
            )
        return response.status, body
