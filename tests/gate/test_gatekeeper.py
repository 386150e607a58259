import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from base.errors import UnreachableError
from base.layout import Layout
from gate.core.denial import Denial, Rule
from gate.core.policy import Forward
from gate.core.repo import GateConfig, RepoConfig, RepoName, RepoPolicy
from gate.core.routes import Matched, match
from gate.daemon import MAX_CONNECTIONS, DaemonClient
from gate.gatekeeper import MAX_LOOKUPS, RepoGatekeeper, host_paths
from gate.guard import Guard
from gate.http.message import RequestHead
from gate.ports import Peer
from tests.gate.docker_stub import DockerStub
from tests.gate.stub_upstream import StubUpstream, reply
from tests.gate.test_state import World
from tests.gate.test_state import world as world  # noqa: PLC0414 - a fixture
from tests.grants.cards import A

PEER = Peer(pid=1, uid=2, gid=3)
HEAD = RequestHead(
    method="POST", target=b"/", headers=(), content_length=None, chunked=False, upgrade=None,
    expect_continue=False, keep_alive=True,
)  # fmt: skip
DEVICE = {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]}


class Desk:
    """A gatekeeper before a recording daemon."""

    def __init__(self, world: World, daemon: StubUpstream, repo: RepoConfig) -> None:
        self.daemon = daemon
        self.client = DaemonClient(daemon.path)
        host = host_paths(world.machine.layout, GateConfig(), repo, daemon.path)
        self.projection = host.projection
        docker = DockerStub(daemon)
        guard = Guard(repo, self.client, daemon.path, world.machine.layout.repo(A).cdi_spec_dir)
        self.docker, self.guard = docker, guard
        self.keeper = RepoGatekeeper(repo, host, world.state, self.client, guard)

    async def ask(self, method: str, target: str, body: object = None) -> Forward | Denial:
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        matched = match(method, target.encode())
        assert isinstance(matched, Matched), matched
        assert self.keeper.inspects(matched)
        return await self.keeper.inspect(matched, HEAD, raw, peer=PEER)


@pytest.fixture
async def desk(world: World, short_dir: Path) -> AsyncIterator[Desk]:
    upstream = str(short_dir / "d.sock")
    repo = RepoConfig(name=RepoName("gpu-a"), guid=A, upstream=upstream, accept=("cdi-spec-dirs",))
    async with StubUpstream(short_dir / "d.sock") as daemon:
        made = Desk(world, daemon, repo)
        yield made
        await made.client.close()


def codes(decision: Forward | Denial) -> tuple[str, ...]:
    assert isinstance(decision, Denial)
    return decision.codes()


async def test_the_grants_of_the_moment_decide(world: World, desk: Desk) -> None:
    body = {"Image": "x", "HostConfig": DEVICE}
    assert codes(await desk.ask("POST", "/v1.51/containers/create", body)) == (Rule.GRANT_MISSING,)
    world.grant("nvidia.com/gpu=0")
    decision = await desk.ask("POST", "/v1.51/containers/create?name=c", body)
    assert isinstance(decision, Forward)
    assert decision.target == b"/v1.51/containers/create?name=c"
    assert decision.body is not None
    requests = json.loads(decision.body)["HostConfig"]["DeviceRequests"]
    assert [each["DeviceIDs"] for each in requests] == [["nvidia.com/gpu=0"]]
    world.store.revoke_all(A)
    assert codes(await desk.ask("POST", "/v1.51/containers/create", body)) == (Rule.GRANT_MISSING,)
    asked = {each.target for each in desk.daemon.requests}
    assert asked <= {"/info", "/version"}, "nothing had to be asked but what daemon this is"


async def test_a_start_is_decided_on_what_the_daemon_says_of_the_container(world: World, desk: Desk) -> None:
    inspected = {"Id": "f" * 64, "Name": "/c", "HostConfig": DEVICE}
    desk.daemon.routes["GET /containers/c/json"] = reply(json.dumps(inspected).encode())
    assert codes(await desk.ask("POST", "/v1.51/containers/c/start")) == (Rule.GRANT_MISSING,)
    world.grant("nvidia.com/gpu=0")
    decision = await desk.ask("POST", "/v1.51/containers/c/start")
    assert isinstance(decision, Forward)
    assert decision.target == b"/v1.51/containers/" + b"f" * 64 + b"/start"


async def test_an_exec_is_looked_up_and_its_container_judged(world: World, desk: Desk) -> None:
    desk.daemon.routes["GET /exec/e/json"] = reply(b'{"ID": "e1", "ContainerID": "c"}')
    inspected = {"Id": "f" * 64, "Name": "/c", "HostConfig": DEVICE}
    desk.daemon.routes["GET /containers/c/json"] = reply(json.dumps(inspected).encode())
    assert codes(await desk.ask("POST", "/v1.51/exec/e/start", {"Tty": True})) == (Rule.GRANT_MISSING,)
    world.grant("nvidia.com/gpu=0")
    decision = await desk.ask("POST", "/v1.51/exec/e/start", {"Tty": True})
    assert isinstance(decision, Forward)
    assert (decision.target, decision.body) == (b"/v1.51/exec/e1/start", b'{"Tty":true}')
    world.store.revoke_all(A)
    assert codes(await desk.ask("POST", "/v1.51/exec/e/start", {})) == (Rule.GRANT_MISSING,)


async def test_buildkit_is_open_while_the_projection_is_all_that_the_daemon_reads(
    desk: Desk, tmp_path: Path
) -> None:
    (other := tmp_path / "other").mkdir()
    (other / "vendor.json").write_text("{}")
    for directory, expected in ((desk.projection, ()), (str(other), (Rule.BUILDER_DEVICES,))):
        desk.docker.info["CDISpecDirs"] = [directory]
        for target in ("/session", "/v1.51/grpc"):
            decision = await desk.ask("POST", target)
            assert (decision.codes() if isinstance(decision, Denial) else ()) == expected


async def test_a_question_without_an_answer_is_a_refusal(desk: Desk) -> None:
    desk.daemon.routes["GET /containers/c/json"] = reply(b"oops", status="500 Internal Server Error")
    assert codes(await desk.ask("POST", "/v1.51/containers/c/start")) == (Rule.LOOKUP_FAILED,)
    await desk.daemon.stop()
    with pytest.raises(UnreachableError):
        await desk.ask("POST", "/v1.51/containers/c/restart")
    await desk.daemon.start()


async def test_what_cannot_be_read_is_malformed(desk: Desk) -> None:
    for body in (b"{", b"[]", b'{"Image":"x","image":"y"}', b'{"HostConfig":{"Memory":"x"}}'):
        decision = await desk.ask("POST", "/v1.51/containers/create", body)
        assert isinstance(decision, Denial)
        assert decision.status == 400


async def test_a_replaced_policy_counts_from_the_next_decision(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    body = {"Image": "x", "HostConfig": {"Binds": [f"{tmp_path}/work:/w"]}}
    assert codes(await desk.ask("POST", "/v1.51/containers/create", body)) == (Rule.BIND_ROOT,)
    policy = RepoPolicy(bind_roots=(str(tmp_path),))
    external = RepoConfig(name=RepoName("gpu-a"), guid=A, upstream="/run/d.sock", policy=policy)
    desk.keeper.repo = external
    assert isinstance(await desk.ask("POST", "/v1.51/containers/create", body), Forward)
    # The machine's own root is tmp_path here, and what is ours may not be reached from above either.
    body = {"Image": "x", "HostConfig": {"Binds": [f"{tmp_path}:/w"]}}
    assert codes(await desk.ask("POST", "/v1.51/containers/create", body)) == (Rule.BIND_SYSTEM,)


async def test_a_daemon_of_ours_that_would_follow_links_gets_no_bind(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    body = {"Image": "x", "HostConfig": {"Binds": [f"{tmp_path}/work:/w"]}}
    policy = RepoPolicy(bind_roots=(str(tmp_path),))
    desk.keeper.repo = RepoConfig(name=RepoName("gpu-a"), guid=A, policy=policy)
    assert codes(await desk.ask("POST", "/v1.51/containers/create", body)) == (Rule.BIND_UNCONFINED,)


def test_everything_of_the_gates_own_is_protected(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    layout = Layout(tmp_path / "link")
    repo = RepoConfig(name=RepoName("a"), guid="guid")
    config = GateConfig(cdi_spec_dirs=("/specs",), protected_paths=("/data",))
    paths = host_paths(layout, config, repo, Path("/up.sock"))
    assert paths.gate_socket == str(layout.repo("guid").socket)
    for one in (
        layout.grants,
        layout.repos_dir,
        layout.repo("x").private,
        layout.repo("x").state,
        layout.audit_log,
    ):
        assert any(one.is_relative_to(each) for each in paths.protected)
        assert any(one.resolve().is_relative_to(each) for each in paths.protected)
    assert {"/specs", "/data", "/up.sock"} <= set(paths.protected)


async def test_before_a_daemon_that_may_not_be_served_everything_but_the_first_questions_is_refused(
    desk: Desk,
) -> None:
    desk.docker.info["DefaultRuntime"] = "nvidia"
    for target in ("/v1.51/containers/json", "/info", "/v1.51/images/x/json"):
        assert codes(await desk.ask("GET", target)) == (Rule.DAEMON_PRECONDITION,)
    assert codes(await desk.ask("POST", "/v1.51/containers/create", {})) == (Rule.DAEMON_PRECONDITION,)
    for target in ("/_ping", "/version"):
        matched = match("GET", target.encode())
        assert isinstance(matched, Matched)
        assert not desk.keeper.inspects(matched)
    desk.docker.info["DefaultRuntime"] = "runc"
    decision = await desk.ask("GET", "/v1.51/containers/json?all=1")
    assert decision == Forward(target=b"/v1.51/containers/json?all=1")


async def test_once_the_daemon_is_followed_requests_pass_without_asking(desk: Desk) -> None:
    matched = match("GET", b"/v1.51/containers/json")
    assert isinstance(matched, Matched)
    assert desk.keeper.inspects(matched)
    await desk.guard.followed()
    assert not desk.keeper.inspects(matched)
    asked = desk.docker.asked("/info")
    assert isinstance(await desk.ask("POST", "/v1.51/containers/create", {"Image": "x"}), Forward)
    assert desk.docker.asked("/info") == asked
    desk.guard.lost()
    assert desk.keeper.inspects(matched)


async def test_a_newer_daemon_is_asked_for_the_audited_version(desk: Desk) -> None:
    desk.docker.version["ApiVersion"] = "1.55"
    await desk.ask("GET", "/containers/json")
    assert desk.keeper.api_version == "1.51"
    desk.docker.version["ApiVersion"] = "1.44"
    await desk.ask("GET", "/containers/json")
    assert desk.keeper.api_version is None


@pytest.mark.parametrize(("count", "rule"), [(MAX_LOOKUPS, None), (MAX_LOOKUPS + 1, Rule.TOO_MANY)])
async def test_a_request_about_too_much_is_refused_before_anything_is_asked(
    desk: Desk, count: int, rule: Rule | None
) -> None:
    names = [f"v{number}" for number in range(count)]
    for name in names:
        desk.daemon.routes[f"GET /volumes/{name}"] = reply(json.dumps({"Name": name}).encode())
    body = {"Image": "x", "HostConfig": {"Binds": [f"{name}:/{name}" for name in names]}}
    decision = await desk.ask("POST", "/v1.51/containers/create", body)
    assert isinstance(decision, Forward) if rule is None else codes(decision) == (rule,)
    asked = [each for each in desk.daemon.requests if each.target.startswith("/volumes/")]
    assert len(asked) == (count if rule is None else 0)
    open_links = [link for link in desk.daemon.links if not link.closed.is_set()]
    assert len(open_links) <= MAX_CONNECTIONS, "each is a file descriptor"


async def test_a_log_line_is_short_whatever_the_method_is(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    head = replace(HEAD, method="A" * 60_000)
    denial = match(head.method, b"/_ping")
    assert isinstance(denial, Denial)
    desk.keeper.refused(head, denial, peer=PEER)
    (record,) = caplog.records
    assert len(record.getMessage()) < 300
