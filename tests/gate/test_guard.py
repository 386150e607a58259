import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from base.errors import UnreachableError
from gate.core.denial import Denial, Rule
from gate.core.preconditions import Precondition
from gate.core.repo import RepoConfig, RepoName
from gate.core.routes import Matched, match
from gate.daemon import DaemonClient
from gate.guard import DaemonGoneError, Guard
from tests.gate.docker_stub import DockerStub
from tests.gate.stub_upstream import Handler, StubUpstream, reply


def matched(target: bytes) -> Matched:
    found = match("GET", target)
    assert isinstance(found, Matched)
    return found


LIST, PING = matched(b"/v1.51/containers/json"), matched(b"/_ping")


@dataclass
class Post:
    guard: Guard
    docker: DockerStub
    repo: RepoConfig

    async def codes(self) -> tuple[str, ...]:
        denial = await self.guard.admit(LIST)
        return denial.codes() if isinstance(denial, Denial) else ()


@pytest.fixture
async def post(short_dir: Path) -> AsyncIterator[Post]:
    repo = RepoConfig(name=RepoName("gpu-a"), guid="g", upstream=str(short_dir / "d.sock"))
    async with StubUpstream(short_dir / "d.sock") as stub:
        client = DaemonClient(stub.path)
        yield Post(Guard(repo, client, stub.path, short_dir / "cdi"), DockerStub(stub), repo)
        await client.close()


async def test_until_the_daemon_is_followed_every_request_asks(post: Post) -> None:
    assert not post.guard.open
    for count in (1, 2):
        assert await post.codes() == ()
        assert post.docker.asked("/info") == count
        assert not post.guard.open
    await post.guard.followed()
    assert post.guard.open
    assert await post.codes() == ()
    assert post.docker.asked("/info") == 3
    post.guard.lost()
    assert not post.guard.open
    post.docker.info["DefaultRuntime"] = "nvidia"
    assert await post.codes() == (Rule.DAEMON_PRECONDITION,)


async def test_what_turns_bad_bars_and_what_turns_good_opens(post: Post) -> None:
    await post.guard.followed()
    post.docker.info["Swarm"] = {"LocalNodeState": "active"}
    await post.guard.check()
    assert (post.guard.open, post.guard.barred) == (False, True)
    assert "swarm" in post.guard.problem
    assert await post.codes() == (Rule.DAEMON_PRECONDITION,)
    assert await post.guard.admit(PING) is None
    post.guard.configure(replace(post.repo, accept=("swarm",)))
    assert post.guard.open
    assert await post.codes() == ()
    post.guard.configure(post.repo)
    assert not post.guard.open
    post.docker.info["Swarm"] = None
    await post.guard.check()
    assert (post.guard.open, post.guard.problem) == (True, "")


async def test_a_daemon_that_is_gone_is_an_error_and_no_refusal(post: Post) -> None:
    await post.guard.followed()
    await post.docker.stub.stop()
    post.guard.lost()
    with pytest.raises(DaemonGoneError) as caught:
        await post.guard.admit(LIST)
    assert (caught.value.http_status, caught.value.code) == (502, "daemon-unreachable")
    assert await post.guard.admit(PING) is None
    with pytest.raises(UnreachableError):
        await post.guard.check()
    assert not post.guard.open
    await post.docker.stub.start()
    assert await post.codes() == ()


@pytest.mark.parametrize("answer", [reply(b"hello"), reply(b"{}", status="500 Internal Server Error")])
async def test_a_daemon_that_cannot_be_judged_is_barred(post: Post, answer: Handler) -> None:
    post.docker.stub.routes["GET /info"] = answer
    assert await post.codes() == (Rule.DAEMON_PRECONDITION,)
    assert [each.precondition for each in post.guard.findings] == [Precondition.INFO]


@pytest.mark.parametrize("answer", [reply(b"hello"), reply(b"{}"), reply(b"", status="404 Not Found")])
async def test_what_is_no_docker_daemon_is_told_and_has_nothing_to_protect(
    post: Post, answer: Handler
) -> None:
    post.docker.stub.routes["GET /info"] = post.docker.stub.routes["GET /version"] = answer
    assert await post.codes() == ()
    assert [each.precondition for each in post.guard.findings] == [Precondition.NOT_DOCKER]
    assert post.guard.api_version is None


async def test_many_that_wait_share_a_check(post: Post) -> None:
    assert set(await asyncio.gather(*(post.codes() for _ in range(20)))) == {()}
    assert post.docker.asked("/info") <= 2


async def test_an_answer_from_before_the_stream_does_not_count(post: Post) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    info = post.docker.stub.routes["GET /info"]

    async def slow(*arguments: object) -> None:
        asked.set()
        await go_on.wait()
        await info(*arguments)  # type: ignore[arg-type]

    post.docker.stub.routes["GET /info"] = slow
    following = asyncio.ensure_future(post.guard.followed())
    await asked.wait()
    post.guard.lost()
    go_on.set()
    await following
    assert not post.guard.open
