import asyncio
import contextlib
import errno
import grp
import resource
import shutil
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from base.errors import RefusedError
from base.layout import Layout
from gate.core.repo import RepoConfig, RepoName
from gate.projections import Projections
from gate.repos import RepoFiles
from gate.serve import serve
from tests.engine import request
from tests.gate.docker_stub import DockerStub
from tests.gate.harness import until
from tests.gate.stub_upstream import StubUpstream


@dataclass
class Served:
    layout: Layout
    files: RepoFiles
    task: asyncio.Task[None]

    def repo(self, name: str, upstream: Path, group: str | None = None) -> Path:
        """Make the repo's file; its socket's path."""
        config = RepoConfig(
            name=RepoName(name), guid=f"{name}-0000000", upstream=str(upstream), socket_group=group
        )
        self.files.save(config, replace=True)
        return self.layout.repo(config.guid).socket

    async def get(self, socket: Path, target: str) -> int:
        return (await asyncio.to_thread(request, socket, "GET", target)).status

    async def health_of(self, problems: int) -> dict[str, object]:
        """What the health endpoint says once it knows of this many problems."""
        async with asyncio.timeout(10):
            while True:
                answer = await asyncio.to_thread(
                    request, self.layout.run_dir / "gate.sock", "GET", "/healthz"
                )
                document: dict[str, object] = answer.json()
                found = document["problems"]
                assert isinstance(found, list)
                assert answer.status == (503 if found else 200)
                if len(found) == problems:
                    return document
                await asyncio.sleep(0.02)


@pytest.fixture
async def served(short_dir: Path) -> AsyncIterator[Served]:
    layout = Layout(short_dir)
    ready = asyncio.Event()
    task = asyncio.create_task(serve(layout, on_ready=ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
    assert ready.is_set(), task.exception()
    yield Served(layout, RepoFiles(layout), task)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert not list(layout.run_dir.rglob("*.sock"))


async def test_repos_come_change_and_go(served: Served, short_dir: Path) -> None:
    async with StubUpstream(short_dir / "one") as one, StubUpstream(short_dir / "two") as two:
        DockerStub(one)
        DockerStub(two)
        socket = served.repo("a", one.path)
        await until(socket.exists)
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
        assert stat.S_IMODE(socket.parent.joinpath("private").stat().st_mode) == 0o700
        assert await served.get(socket, "/_ping") == 200
        assert await served.get(socket, "/v1.51/containers/c/json") == 200
        assert [each.target for each in one.requests if each.target.startswith("/v1.51")] == [
            "/v1.51/containers/c/json"
        ]
        served.repo("a", two.path)
        await until(lambda: two.requests)  # the gate asks the new daemon who it is
        assert await served.get(socket, "/version") == 200
        assert await served.get(socket, "/v1.51/images/json") == 200
        assert two.requests[-1].target == "/v1.51/images/json"
        served.files.delete(RepoName("a"))
        await until(lambda: not socket.exists())


async def test_a_renamed_repo_is_served_on_the_connections_that_it_has(
    served: Served, short_dir: Path
) -> None:
    ask = b"GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n"
    async with StubUpstream(short_dir / "one") as daemon:
        DockerStub(daemon)
        socket = served.repo("a", daemon.path)
        await until(socket.exists)
        inode = socket.stat().st_ino
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(ask)
        await reader.readuntil(b" 200 ")
        served.files.rename(served.files.read(RepoName("a")), RepoName("b"))
        metrics = served.layout.run_dir / "gate.sock"
        async with asyncio.timeout(10):
            while True:
                answer = await asyncio.to_thread(request, metrics, "GET", "/metrics")
                if b'repo="b"' in answer.body:
                    break
                await asyncio.sleep(0.02)
        writer.write(ask)
        await reader.readuntil(b" 200 ")
    writer.write(ask)
    async with asyncio.timeout(10):
        await reader.readuntil(b"daemon of repo b ")
    writer.close()
    assert socket.stat().st_ino == inode


async def test_a_socket_that_somebody_removed_comes_back(served: Served, short_dir: Path) -> None:
    async with StubUpstream(short_dir / "one") as daemon:
        socket = served.repo("a", daemon.path)
        await until(socket.exists)
        reader, writer = await asyncio.open_unix_connection(socket)
        socket.unlink()
        await until(socket.exists)
        assert await served.get(socket, "/_ping") == 200
        shutil.rmtree(socket.parent)
        await until(socket.exists)
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
        assert await served.get(socket, "/_ping") == 200
        socket.unlink()
        socket.write_text("something else")
        told = str((await served.health_of(1))["problems"])
        assert "not a socket" in told
        socket.unlink()
        await served.health_of(0)
        assert await served.get(socket, "/_ping") == 200
        writer.write(b"GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"  # what was open has lived through all of it
        writer.close()


async def test_a_problem_is_over_when_the_file_says_again_what_is_served(
    served: Served, short_dir: Path
) -> None:
    async with StubUpstream(short_dir / "one") as daemon:
        await until(served.repo("a", daemon.path).exists)
        served.repo("a", daemon.path, group="no-such-group")
        await served.health_of(1)
        served.repo("a", daemon.path)
        await served.health_of(0)


async def test_a_broken_file_harms_nobody_and_is_told(served: Served, short_dir: Path) -> None:
    async with StubUpstream(short_dir / "one") as daemon:
        DockerStub(daemon)
        socket = served.repo("good", daemon.path)
        await until(socket.exists)
        path = served.layout.repos_dir / "bad.yaml"
        path.write_text("schema_version: 1\nnonsense: true\n")
        good = served.layout.repos_dir / "good.yaml"
        content = good.read_text()
        good.write_text(content + "nonsense: true\n")
        document = await served.health_of(2)
        assert "bad.yaml" in str(document["problems"])
        assert document["repos"] == ["good"], "a slip in its file does not end a repo that is served"
        assert await served.get(socket, "/_ping") == 200
        path.unlink()
        good.write_text(content)
        await served.health_of(0)


async def test_groups_own_sockets_and_unknown_ones_are_told(served: Served, short_dir: Path) -> None:
    group = next(each for each in grp.getgrall() if each.gr_gid != 0)
    socket = served.repo("grouped", short_dir / "absent", group.gr_name)
    other = served.repo("lost", short_dir / "absent2", "no-such-group-here")
    await until(socket.exists)
    assert socket.stat().st_gid == group.gr_gid
    assert await served.get(socket, "/_ping") == 502
    assert not other.exists()
    document = await served.health_of(1)
    assert "no-such-group-here" in str(document["problems"])


async def test_nothing_that_fails_while_following_ends_the_gate(
    served: Served, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StubUpstream(short_dir / "one") as daemon:
        socket = served.repo("a", daemon.path)
        await until(socket.exists)
        with monkeypatch.context() as failing:

            def no_descriptor_left(_files: RepoFiles) -> None:
                raise OSError(errno.EMFILE, "Too many open files")

            failing.setattr(RepoFiles, "fingerprint", no_descriptor_left)
            failing.setattr(Projections, "follow", no_descriptor_left)
            document = await served.health_of(2)
            assert "Too many open files" in str(document["problems"])
            assert await served.get(socket, "/_ping") == 200
        assert (await served.health_of(0))["repos"] == ["a"]


async def test_the_gate_may_open_as_many_files_as_the_machine_allows(served: Served) -> None:
    assert not served.task.done()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard


async def test_one_gate_per_root(served: Served) -> None:
    with pytest.raises(RefusedError):
        await serve(served.layout)


async def test_a_daemon_that_turns_bad_is_told_and_barred(served: Served, short_dir: Path) -> None:
    async with StubUpstream(short_dir / "one") as daemon:
        docker = DockerStub(daemon)
        socket = served.repo("a", daemon.path)
        await until(lambda: docker.streams)
        assert await served.get(socket, "/info") == 200
        docker.info["ExperimentalBuild"] = True
        await docker.tell("reload", kind="daemon")
        document = await served.health_of(1)
        assert "experimental" in str(document["problems"])
        assert await served.get(socket, "/info") == 403
        assert await served.get(socket, "/_ping") == 200
        path = served.layout.repos_dir / "a.yaml"
        path.write_text(path.read_text().replace("accept: []", "accept: [experimental]"))
        await served.health_of(0)
        assert await served.get(socket, "/info") == 200


async def test_what_holds_a_device_without_a_grant_ends(served: Served, short_dir: Path) -> None:
    async with StubUpstream(short_dir / "one") as daemon:
        docker = DockerStub(daemon)
        docker.run("f" * 64, {"Devices": [{"PathOnHost": "/dev/kmsg"}]})
        served.repo("a", daemon.path)
        await until(lambda: docker.stopped == ["f" * 64])
