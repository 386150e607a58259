"""A daemon newer than the gate: what clients are offered, and what unversioned requests mean."""

import json

import pytest

from gate.metrics import Outcome
from tests.gate.harness import gate, get, post
from tests.gate.stub_upstream import Link, Recorded, reply

HEADERS = "Api-Version: 1.55\r\nDocker-Experimental: false\r\nContent-Type: text/plain; charset=utf-8\r\n"
VERSION = json.dumps({"ApiVersion": "1.55", "MinAPIVersion": "1.44", "Version": "29.0.0"}).encode()
JSON = "Content-Type: application/json\r\nApi-Version: 1.55\r\n"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_ping_offers_the_audited_version(method: str) -> None:
    async with gate() as g:
        g.daemon.default = reply(b"OK", headers=HEADERS)
        client = await g.client()
        for _ in range(2):
            answer = await client.ask(get("/_ping", method=method))
            assert answer.headers["api-version"] == "1.51"
            assert answer.headers["docker-experimental"] == "false"
            assert answer.body == (b"OK" if method == "GET" else b"")


async def test_version_offers_the_audited_version_whatever_its_framing() -> None:
    async def in_chunks(_request: Recorded, link: Link) -> None:
        await link.send(f"HTTP/1.1 200 OK\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n".encode())
        for part in (VERSION[:7], VERSION[7:]):
            await link.send(b"%x\r\n%b\r\n" % (len(part), part))
        await link.send(b"0\r\n\r\n")

    async with gate() as g:
        client = await g.client()
        for handler in (reply(VERSION, headers=JSON), in_chunks):
            g.daemon.routes["GET /version"] = handler
            answer = await client.ask(get("/version"))
            assert json.loads(answer.body) == {**json.loads(VERSION), "ApiVersion": "1.51"}
            assert answer.headers["api-version"] == "1.51"
        assert g.count("system.version", Outcome.ANSWERED) == 2


async def test_requests_without_a_version_mean_the_audited_one() -> None:
    async with gate() as g:
        g.gatekeeper.api_version = "1.51"
        client = await g.client()
        for raw in (
            get("/containers/json?all=1"),
            get("/v1.44/containers/json"),
            post("/containers/create", b"{}"),
            get("/v1.51/info"),
        ):
            await client.ask(raw)
        assert [each.target for each in g.daemon.requests] == [
            "/v1.51/containers/json?all=1",
            "/v1.44/containers/json",
            "/v1.51/containers/create",
            "/v1.51/info",
        ]


async def test_asking_again_on_a_new_connection_asks_the_same() -> None:
    async with gate() as g:
        g.gatekeeper.api_version = "1.51"
        client = await g.client()
        await client.ask(get("/info"))
        g.daemon.links[0].writer.transport.abort()
        assert (await client.ask(get("/info"))).status == 200
        assert {each.target for each in g.daemon.requests} == {"/v1.51/info"}


async def test_a_daemon_of_an_audited_version_gets_the_target_as_it_is() -> None:
    async with gate() as g:
        client = await g.client()
        await client.ask(get("/info"))
        assert [each.target for each in g.daemon.requests] == ["/info"]
