"""Builds through the gate: everything BuildKit does for its users, and no hardware."""

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import IMAGE
from tests.system.clients import RUN
from tests.system.conftest import Gated

DOCKERFILE = f"""
FROM {IMAGE} AS first
ARG WORD=none
RUN --mount=type=cache,target=/cache echo $WORD >> /cache/seen && cp /cache/seen /seen

FROM {IMAGE} AS second
RUN --mount=type=secret,id=token cat /run/secrets/token > /secret-was-here
RUN --mount=type=ssh test -S "$SSH_AUTH_SOCK"
RUN --mount=type=bind,from=first,source=/seen,target=/in cat /in > /bound

FROM {IMAGE}
COPY --from=first /seen /seen
COPY --from=second /secret-was-here /bound /
COPY file /file
CMD cat /seen /secret-was-here /bound /file
"""


@pytest.fixture
def agent(short_dir: Path) -> Iterator[Path]:
    """An SSH agent without keys: a failure to every question is an answer of its protocol."""
    path = short_dir / "agent"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                while client.recv(4096):
                    client.sendall(struct.pack(">IB", 1, 5))

    thread = threading.Thread(target=serve)
    thread.start()
    yield path
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_stages_caches_secrets_and_ssh(gated28: Gated, tmp_path: Path, agent: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "file").write_text("copied\n")
    (tmp_path / "token").write_text("hidden\n")
    secret = f"id=token,src={tmp_path / 'token'}"
    for word, seen in (("one", "one\n"), ("two", "one\ntwo\n")):
        gated28.gate.ok(
            "build", "--network", "none", "--build-arg", f"WORD={word}", "--secret", secret,
            "--ssh", f"default={agent}", "-t", "staged:1", str(tmp_path), env={"DOCKER_BUILDKIT": "1"},
        )  # fmt: skip
        assert gated28.gate.ok(*RUN, "staged:1") == f"{seen}hidden\n{seen}copied\n"
    assert "hidden" not in gated28.gate.ok("history", "--no-trunc", "staged:1")


def test_a_build_that_asks_for_a_device_fails(gated28: Gated, tmp_path: Path) -> None:
    for flag in ("nvidia.com/gpu=1", "nvidia.com/gpu", "nvidia.com/gpu=1,required"):
        (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN --device={flag} true\n")
        done = gated28.gate.run("build", "--network", "none", str(tmp_path), env={"DOCKER_BUILDKIT": "1"})
        assert done.returncode != 0, done.stderr
        assert "device" in done.stderr
