"""Small questions to a Docker daemon over its unix socket, with nothing but the standard library.

For the command line, where loading an HTTP client would cost more than the question; the gate has its own.
"""

import contextlib
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from base.errors import MalformedError, UnreachableError
from gate.core.preconditions import Unmet, unmet
from gate.core.repo import RepoPolicy
from gate.core.watch import Run, read_run
from machine.core.engine_info import Contents, EngineInfo, Holder, decode_ids, decode_object, holder

ANSWER_LIMIT_BYTES = 16 * 1024 * 1024
TIMEOUT_S = 5.0
_USAGE_TIMEOUT_S = 20.0
_RUNNING = quote('{"status":["running","paused","restarting"]}')
_STOP_GRACE_S = 10
_PIECE_BYTES = 64 * 1024
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r\n]")
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*(?:\r\n|\Z)", re.IGNORECASE)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[^\r\n]*)?\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*(?:\r\n|\Z)", re.IGNORECASE)


class Daemon:
    """One daemon, asked afresh each time."""

    def __init__(self, path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s

    def answers(self) -> bool:
        """Whether `GET /_ping` gives 200."""
        try:
            return self._call("GET", "/_ping")[0] == HTTPStatus.OK
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

    def contents(self) -> Contents:
        """How much it has, without sizes when it takes too long to add them up.

        Raises:
            UnreachableError: nobody answers, or not with 200.
            MalformedError: the answer is not a Docker daemon's.
        """
        counted = Contents.of_info(self._get("/info"))
        with contextlib.suppress(UnreachableError, MalformedError):
            return Contents.of_usage(self._get("/system/df", timeout_s=_USAGE_TIMEOUT_S))
        return counted

    def unmet_preconditions(self) -> tuple[Unmet, ...]:
        """Why a gate before this daemon would not mean much.

        Raises:
            UnreachableError: nobody answers, or not with 200.
            MalformedError: the answer is not a Docker daemon's.
        """
        return unmet(decode_object(self._get("/info")))

    def document(self, target: str) -> Mapping[str, object]:
        """What a GET of this target answers, a JSON object.

        Raises:
            UnreachableError: nobody answers, or not with 200.
            MalformedError: the answer is not a Docker daemon's.
        """
        return decode_object(self._get(target))

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
        holders = map(holder, self._running())
        return tuple(each for each in holders if wanted.intersection(each.devices))

    def runs(self, policy: RepoPolicy) -> tuple[Run, ...]:
        """Every container that runs, as a watcher under this policy sees it.

        Raises:
            UnreachableError: nobody answers.
            MalformedError: the answer is not a Docker daemon's.
        """
        seen = (read_run(decode_object(body), policy) for body in self._running())
        return tuple(run for run in seen if run is not None)

    def stop(self, container: str) -> None:
        """Stop a container: SIGTERM, and SIGKILL ten seconds later; one that has ended is fine.

        Raises:
            UnreachableError: the daemon does not answer, or could not stop it.
        """
        target = f"/containers/{quote(container, safe='')}/stop?t={_STOP_GRACE_S}"
        status, body = self._call("POST", target, timeout_s=self._timeout_s + 2 * _STOP_GRACE_S)
        if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED, HTTPStatus.NOT_FOUND):
            self._expect(status, body, target)

    def _running(self) -> Iterator[bytes]:
        """The inspect answers of running, paused and restarting containers."""
        for identity in decode_ids(self._get(f"/containers/json?filters={_RUNNING}")):
            target = f"/containers/{identity}/json"
            status, body = self._call("GET", target)
            if status == HTTPStatus.NOT_FOUND:
                continue  # it ended between the two questions
            self._expect(status, body, target)
            yield body

    def _get(self, target: str, *, timeout_s: float | None = None) -> bytes:
        status, body = self._call("GET", target, timeout_s=timeout_s)
        self._expect(status, body, target)
        return body

    def _expect(self, status: int, body: bytes, target: str) -> None:
        if status != HTTPStatus.OK:
            said = body[:200].decode(errors="replace").strip()
            raise UnreachableError(
                f"the daemon at {self._path} answers {status} to {target.partition('?')[0]}: {said}"
            )

    def _call(self, method: str, target: str, *, timeout_s: float | None = None) -> tuple[int, bytes]:
        """One request on a connection of its own; status and body of the answer."""
        head = f"{method} {target} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(self._timeout_s if timeout_s is None else timeout_s)
                link.connect(str(self._path))
                link.sendall(head.encode("ascii"))
                raw = _read_all(link)
        except OSError as exc:
            reason = exc.strerror or str(exc) or type(exc).__name__
            raise UnreachableError(f"no Docker daemon answers at {self._path}: {reason}") from exc
        if len(raw) > ANSWER_LIMIT_BYTES:
            raise MalformedError(
                f"the daemon at {self._path} answers with more than {ANSWER_LIMIT_BYTES} bytes"
            )
        return self._split(raw)

    def _split(self, raw: bytes) -> tuple[int, bytes]:
        head, end, rest = raw.partition(b"\r\n\r\n")
        status, length = _STATUS.match(head), _LENGTH.search(head)
        body: bytes | None = rest
        if _CHUNKED.search(head):
            body = _without_chunks(rest)
        elif length is not None:
            body = rest if int(length[1]) == len(rest) else None
        if not end or status is None or body is None:
            raise UnreachableError(f"what listens on {self._path} breaks off or does not speak HTTP")
        return int(status[1]), body


def _without_chunks(rest: bytes) -> bytes | None:
    """The content of a chunked body (RFC 9112, 7.1); None when it breaks off."""
    pieces: list[bytes] = []
    position = 0
    while line := _CHUNK.match(rest, position):
        start, size = line.end(), int(line[1], 16)
        if size == 0:
            return b"".join(pieces)
        position = start + size + len(b"\r\n")
        if len(rest) < position:
            return None
        pieces.append(rest[start : start + size])
    return None


def _read_all(link: socket.socket) -> bytes:
    """Everything until the peer closes, or a little more than the limit."""
    pieces, size = [], 0
    while size <= ANSWER_LIMIT_BYTES and (piece := link.recv(_PIECE_BYTES)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
