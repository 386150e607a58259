"""One request and its answer: what reaches the daemon, what comes back, whatever order things happen in."""

import asyncio
import json

import pytest

from gate.core.denial import Denial
from gate.core.policy import Forward
from gate.core.routes import Matched
from gate.http.message import HttpCode, RequestHead
from gate.limits import Limits
from gate.metrics import Outcome
from tests.gate.harness import chunked, gate, get, post, until
from tests.gate.stub_upstream import Link, Recorded, read_body, reply

CREATE = "/v1.51/containers/create"


async def test_inspected_bodies_are_rebuilt() -> None:
    async with gate() as g:
        client = await g.client()
        body = b' {"b" : 1,\n "a":2} '
        for raw in (
            post(f"{CREATE}?name=x", body, "X-Forwarded: no", "User-Agent: u"),
            chunked(f"{CREATE}?name=x", body[:5], body[5:], content_type="application/json"),
        ):
            assert (await client.ask(raw)).status == 200
            request = g.daemon.requests[-1]
            assert (request.target, request.body) == (f"{CREATE}?name=x", b'{"a": 2, "b": 1}')
            assert request.header("content-length") == "16"
            assert request.header("content-type") == "application/json"
            assert request.header("host") == "docker"
            assert request.header("transfer-encoding") is None
            assert request.header("x-forwarded") is None
        assert [body for _, body, _ in g.gatekeeper.inspected] == [body, body]


async def test_the_target_is_the_canonical_one() -> None:
    async with gate() as g:
        client = await g.client()
        assert (await client.ask(get("/v1.51/containers/%63%31/json?size=1&evil=1"))).status == 200
        assert g.daemon.requests[-1].target == "/v1.51/containers/c1/json?size=1"


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_bodies_are_dropped_where_none_belongs(framing: str) -> None:
    form = "application/x-www-form-urlencoded"
    async with gate() as g:
        client = await g.client()
        for target in ("/containers/a/start", "/containers/a/rename?name=good", "/build/cancel?id=1"):
            raw = (
                post(target, b"name=evil", content_type=form)
                if framing == "length"
                else chunked(target, b"name=", b"evil", content_type=form)
            )
            assert (await client.ask(raw)).status == 200
            request = g.daemon.requests[-1]
            assert (request.target, request.body) == (target, b"")
            assert request.header("content-length") == "0"
            assert request.header("content-type") is None
            assert request.header("transfer-encoding") is None
        raw = get("/info", "Content-Length: 3", "Content-Type: text/plain") + b"abc"
        assert (await client.ask(raw)).status == 200
        assert g.daemon.requests[-1].header("content-length") is None
        assert (await client.ask(get())).status == 200


@pytest.mark.parametrize("target", [CREATE, "/containers/a/start", "/containers/a/rename?name=b"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_large_bodies_are_refused_and_the_answer_is_readable(target: str, framing: str) -> None:
    async with gate(Limits(inspected_body_bytes=50_000, dropped_body_bytes=50_000)) as g:
        client = await g.client()
        piece = b" " * 10_000
        raw = (
            post(target, piece * 300)
            if framing == "length"
            else chunked(target, *[piece] * 300, content_type="application/json")
        )
        client.send(raw)
        answer = await client.answer()
        if target == CREATE or framing == "chunked":
            assert (answer.status, f"[{HttpCode.BODY_TOO_LARGE}]" in answer.message) == (413, True)
        assert g.gatekeeper.inspected == [] or target != CREATE
        assert all(not request.body for request in g.daemon.requests)


async def test_a_repo_cannot_fill_the_memory_with_bodies_that_wait() -> None:
    async with gate(Limits(held_bodies_bytes=1000)) as g:
        one, two = await g.client(), await g.client()
        body = json.dumps({"a": "x" * 580}).encode()
        whole = post(CREATE, body)
        one.send(whole[:-1])
        refused = await two.ask(whole)
        while refused.status == 200:  # the first one's bytes are still on their way
            refused = await two.ask(whole)
        assert (refused.status, "[gate-busy]" in refused.message) == (503, True)
        one.send(whole[-1:])
        assert (await one.answer()).status == 200
        assert (await two.ask(whole)).status == 200, "what was decided is not held any longer"
        one.send(whole[:-1])
        one.vanish()
        await until(lambda: g.metrics.connections == 1)
        assert (await two.ask(whole)).status == 200
        assert (await two.ask(post(CREATE, b"x" * 1001))).status == 503
        assert (await two.ask(whole)).status == 200


async def test_the_largest_inspected_body_passes() -> None:
    async with gate() as g:
        client = await g.client()
        body = json.dumps({"a": "x" * (1024 * 1024 - 9)}).encode()
        assert len(body) == 1024 * 1024
        assert (await client.ask(post(CREATE, body))).status == 200
        assert (await client.ask(post(CREATE, body + b" "))).status == 413
        assert len(g.daemon.requests) == 1


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_uploads_are_streamed(framing: str) -> None:
    async with gate() as g:
        client = await g.client()
        pieces = [bytes([n]) * 50_000 for n in range(100)]
        head = get("/images/load", "Content-Type: application/x-www-form-urlencoded", method="POST")
        if framing == "length":
            client.send(post("/images/load", b"".join(pieces), content_type="text/plain"))
        else:
            client.send(chunked("/images/load", *pieces))
        assert (await client.answer()).status == 200
        request = g.daemon.requests[-1]
        assert request.body == b"".join(pieces)
        assert request.header("content-type") == "application/x-tar"
        assert head


async def test_chunk_extensions_and_trailers_do_not_pass() -> None:
    raw_body = bytearray()

    async def record(request: Recorded, link: Link) -> None:
        while not raw_body.endswith(b"0\r\n\r\n"):
            raw_body.extend(await link.reader.read(1000))
        await reply()(request, link)

    async with gate() as g:
        g.daemon.routes["POST /images/load"] = record
        g.daemon.heads_only.add("POST /images/load")
        client = await g.client()
        head = get("/images/load", "Transfer-Encoding: chunked", "Trailer: X", method="POST")
        client.send(head, b"5;ext=1\r\nhello\r\n00;x\r\nX: y\r\n\r\n")
        assert (await client.answer()).status == 200
        assert bytes(raw_body) == b"5\r\nhello\r\n0\r\n\r\n"
        assert g.daemon.requests[0].header("trailer") is None


async def test_an_inspected_upload_waits_for_the_decision() -> None:
    decided = asyncio.Event()

    async def slowly(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
        assert body == b""
        await decided.wait()
        return Forward(target=b"/v1.51/build?q=1", content_type=b"application/x-tar")

    async with gate() as g:
        g.gatekeeper.decide = slowly
        client = await g.client()
        client.send(chunked("/v1.51/build", *[b"x" * 100_000] * 20, content_type="text/plain"))
        await until(lambda: g.gatekeeper.inspected)
        assert g.daemon.links == []
        decided.set()
        assert (await client.answer()).status == 200
        request = g.daemon.requests[0]
        assert (request.target, request.body) == ("/v1.51/build?q=1", b"x" * 2_000_000)
        assert request.header("content-type") == "application/x-tar"
        assert (await client.ask(get())).status == 200


async def test_an_inspected_upload_that_ends_early_is_cut() -> None:
    async with gate() as g:
        g.daemon.heads_only.add("POST /build")
        client = await g.client()
        client.send(get("/build", "Content-Length: 100", method="POST"), b"half")
        client.finish()
        answer = await client.answer()
        assert answer.status == 400
        await until(lambda: all(link.closed.is_set() for link in g.daemon.links))


@pytest.mark.parametrize("target", [CREATE, "/images/load", "/build"])
async def test_expect_is_answered_by_the_gate(target: str) -> None:
    async with gate() as g:
        client = await g.client()
        client.send(
            get(
                target,
                "Content-Type: application/json",
                "Content-Length: 2",
                "Expect: 100-continue",
                method="POST",
            )
        )
        assert (await client.answer()).status == 100
        client.send(b"{}")
        assert (await client.answer()).status == 200
        assert g.daemon.requests[0].header("expect") is None
        assert (await client.ask(get())).status == 200


async def test_expect_is_not_answered_before_a_denial() -> None:
    async with gate() as g:
        client = await g.client()
        answer = await client.ask(
            get("/swarm/init", "Content-Length: 2", "Expect: 100-continue", method="POST")
        )
        assert (answer.status, answer.headers["connection"]) == (403, "close")
        assert await client.rest() == b""


async def test_warnings_are_added() -> None:
    async def warn(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
        return Forward(
            target=matched.target, content_type=b"application/json", body=body, response_warnings=("ours",)
        )

    async with gate() as g:
        g.gatekeeper.decide = warn
        client = await g.client()
        answers = {
            b'{"Id":"1","Warnings":["theirs"]}': ["theirs", "ours"],
            b'{"Id":"1","Warnings":null}': ["ours"],
            b'{"Id":"1"}': ["ours"],
        }
        for body, warnings in answers.items():
            g.daemon.default = reply(
                body, "201 Created", "Content-Type: application/json\r\nApi-Version: 1.51\r\n"
            )
            answer = await client.ask(post(CREATE, b"{}"))
            assert (answer.status, answer.headers["api-version"]) == (201, "1.51")
            assert json.loads(answer.body) == {"Id": "1", "Warnings": warnings}
        for body, status in {b'{"message":"no"}': "409 Conflict", b"text": "201 Created"}.items():
            g.daemon.default = reply(body, status, "Content-Type: application/json\r\n")
            assert (await client.ask(post(CREATE, b"{}"))).body == body


async def test_answers_keep_their_framing() -> None:
    async def raw(request: Recorded, link: Link) -> None:
        await link.send(answers[request.target])
        if request.target == "/version":
            link.writer.close()

    answers = {
        "/info": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        "/containers/json": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "/_ping": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
        "/containers/c/stop": b"HTTP/1.1 204 No Content\r\n\r\n",
        "/networks": b"HTTP/1.1 304 Not Modified\r\n\r\n",
        "/version": b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    }
    async with gate() as g:
        g.daemon.default = raw
        client = await g.client()
        for target, method in (
            ("/info", "GET"),
            ("/containers/json", "GET"),
            ("/_ping", "HEAD"),
            ("/containers/c/stop", "POST"),
            ("/networks", "GET"),
        ):
            client.send(get(target, method=method))
            assert await client.exactly(len(answers[target])) == answers[target]
        answer = await client.ask(get("/version"))
        assert (answer.body, answer.headers["connection"]) == (b"until the end", "close")
        assert len(g.daemon.links) == 1


async def test_an_answer_may_come_in_any_pieces() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nT: x\r\n\r\n"

    async def dribble(request: Recorded, link: Link) -> None:
        for byte in answer:
            await link.send(bytes([byte]))
            await asyncio.sleep(0)

    async with gate() as g:
        g.daemon.default = dribble
        client = await g.client()
        for _ in range(2):
            client.send(get("/events"))
            assert await client.exactly(len(answer)) == answer
        assert len(g.daemon.links) == 1


async def test_hop_by_hop_fields_of_answers_stay_here() -> None:
    async with gate() as g:
        g.daemon.default = reply(
            b"x", headers="Connection: close, X-A\r\nX-A: 1\r\nX-B: 2\r\nKeep-Alive: 3\r\n"
        )
        client = await g.client()
        for _ in range(2):
            answer = await client.ask(get())
            assert {"connection", "x-a", "keep-alive"} & set(answer.headers) == set()
            assert answer.headers["x-b"] == "2"
        assert len(g.daemon.links) == 2


async def test_interim_answers_stay_here() -> None:
    async def interim(request: Recorded, link: Link) -> None:
        await link.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n")
        await asyncio.sleep(0.01)
        await reply()(request, link)

    async with gate() as g:
        g.daemon.default = interim
        client = await g.client()
        assert (await client.ask(get())).status == 200


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("closes", [True, False])
async def test_an_early_answer_to_an_upload_arrives_whole(framing: str, closes: bool) -> None:
    text = json.dumps({"message": "no such container " + "x" * 100_000}).encode()

    async def at_once(request: Recorded, link: Link) -> None:
        await reply(text, "404 Not Found")(request, link)
        if closes:
            link.writer.close()
        else:
            await link.closed.wait()

    route = "PUT /containers/none/archive"
    async with gate() as g:
        g.daemon.routes[route] = at_once
        g.daemon.heads_only.add(route)
        for _ in range(5):
            client = await g.client()
            piece = bytes(100_000)
            if framing == "length":
                client.send(get("/containers/none/archive?path=/", "Content-Length: 10000000", method="PUT"))
                pieces = [piece] * 100
            else:
                client.send(chunked("/containers/none/archive?path=/", method="PUT")[:-5])
                pieces = [b"%x\r\n%b\r\n" % (len(piece), piece)] * 100 + [b"0\r\n\r\n"]
            for piece in pieces:
                client.send(piece)
                await client.writer.drain()
            answer = await client.answer()
            assert (answer.status, answer.body) == (404, text)
            assert (await client.ask(get())).status == 200


async def test_an_answer_that_streams_while_the_upload_goes_on() -> None:
    async def load(request: Recorded, link: Link) -> None:
        await link.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbusy\r\n")
        body = await read_body(request, link.reader)
        await link.send(b"%x\r\n%d\r\n0\r\n\r\n" % (len(str(len(body))), len(body)))

    async with gate() as g:
        g.daemon.routes["POST /images/load"] = load
        g.daemon.heads_only.add("POST /images/load")
        client = await g.client()
        client.send(get("/images/load", "Content-Length: 1000000", method="POST"))
        assert b"chunked" in await client.head()
        assert await client.exactly(9) == b"4\r\nbusy\r\n"
        client.send(bytes(1_000_000))
        assert await client.exactly(17) == b"7\r\n1000000\r\n0\r\n\r\n"
        assert (await client.ask(get())).status == 200


async def test_outcomes_are_counted() -> None:
    async with gate() as g:
        client = await g.client()
        await client.ask(post(CREATE, b"{}"))
        await client.ask(get())
        await client.ask(get("/nope"))
        assert dict(g.metrics.requests) == {
            ("container.create", Outcome.ANSWERED): 1,
            ("system.ping", Outcome.ANSWERED): 1,
            ("-", Outcome.DENIED): 1,
        }
        assert g.metrics.bytes_from_clients > 0
        assert g.metrics.bytes_from_daemons > 0
