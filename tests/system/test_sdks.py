"""Compose, docker-py and aiodocker notice nothing."""

import re
import tarfile
from io import BytesIO
from pathlib import Path

import aiodocker
import docker as docker_py

from tests.engine import IMAGE, Docker
from tests.system.clients import both
from tests.system.conftest import Gated

COMPOSE = f"""
services:
  writer:
    image: {IMAGE}
    command: sh -c 'echo written > /data/file; echo writer done'
    volumes: [shared:/data]
  reader:
    image: {IMAGE}
    command: sh -c 'cat /data/file; echo reader done'
    volumes: [shared:/data]
    depends_on: {{writer: {{condition: service_completed_successfully}}}}
volumes: {{shared: {{}}}}
"""


def test_compose_up_logs_down(gated28: Gated, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE)

    def action(cli: Docker) -> tuple[list[str], list[int]]:
        compose = (
            "compose",
            "-p",
            "proj",
            "--project-directory",
            str(tmp_path),
            "-f",
            str(tmp_path / "compose.yaml"),
        )
        up = cli.run(*compose, "up", "--no-color")
        logs = cli.run(*compose, "logs", "--no-color")
        down = cli.run(*compose, "down", "-v", "--timeout", "0")
        lines = sorted(re.sub(r"\s+", " ", line) for line in logs.stdout.splitlines())
        codes = [done.returncode for done in (up, logs, down)]
        assert codes == [0, 0, 0], up.stderr + logs.stderr + down.stderr
        return lines, codes

    result = both(gated28, action)
    assert isinstance(result, tuple)
    assert result[0] == ["reader-1 | reader done", "reader-1 | written", "writer-1 | writer done"]


def test_docker_py(gated28: Gated) -> None:
    def action(cli: Docker) -> tuple[bytes, bytes, int, bytes]:
        client = docker_py.DockerClient(base_url=cli.host, version="auto")
        try:
            output = client.containers.run(IMAGE, ["echo", "hi"], remove=True, network_mode="none")
            container = client.containers.run(IMAGE, ["sleep", "60"], detach=True, network_mode="none")
            try:
                code, executed = container.exec_run(["sh", "-c", "echo out; exit 2"])
                data = BytesIO()
                with tarfile.open(fileobj=data, mode="w") as archive:
                    member = tarfile.TarInfo("f")
                    member.size = 4
                    archive.addfile(member, BytesIO(b"data"))
                container.put_archive("/tmp", data.getvalue())
                stream, _ = container.get_archive("/tmp/f")
                with tarfile.open(fileobj=BytesIO(b"".join(stream))) as archive:
                    copied = archive.extractfile("f")
                    assert copied is not None
                    return output, executed, code, copied.read()
            finally:
                container.remove(force=True)
        finally:
            client.close()

    assert both(gated28, action) == (b"hi\n", b"out\n", 2, b"data")


async def test_aiodocker(gated28: Gated) -> None:
    async def action(cli: Docker) -> tuple[list[str], int, list[str]]:
        async with aiodocker.Docker(url=cli.host) as client:
            container = await client.containers.run(
                {"Image": IMAGE, "Cmd": ["sh", "-c", "echo one; sleep 0.3; echo two; exit 8"],
                 "HostConfig": {"NetworkMode": "none"}}
            )  # fmt: skip
            try:
                lines = [line async for line in container.log(stdout=True, follow=True)]
                status = await container.wait()
            finally:
                await container.delete(force=True)
            names = sorted(tag for image in await client.images.list() for tag in image["RepoTags"] or ())
            return lines, status["StatusCode"], names

    raw = await action(gated28.raw)
    assert await action(gated28.gate) == raw
    assert raw[:2] == (["one\n", "two\n"], 8)
