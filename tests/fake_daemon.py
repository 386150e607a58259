"""A daemon that says what it is told to, over a unix socket, for clients that only ask."""

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

Answers = Mapping[str, tuple[int, object]]
"""`METHOD path?query` to status and body; bytes go out as they are, anything else as JSON."""


class FakeDaemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers from `answers`, which a test may change at any time; everything else is 404."""

    daemon_threads = True

    def __init__(self, path: Path, answers: dict[str, tuple[int, object]]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.chunked = False
        super().__init__(str(path), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: FakeDaemon
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        key = f"{self.command} {self.path}"
        self.server.asked.append(key)
        status, answer = self.server.answers.get(key, (404, {"message": "not found"}))
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        if self.server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in (*pieces, b""))
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the base class's naming

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


@contextlib.contextmanager
def fake_daemon(path: Path, answers: dict[str, tuple[int, object]]) -> Iterator[FakeDaemon]:
    """Serve until the block ends."""
    with FakeDaemon(path, answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
