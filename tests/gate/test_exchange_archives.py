"""Archives into containers: looked at on the way, cut off before a device node reaches the daemon."""

import asyncio

import pytest

from gate.core.denial import Denial, Rule
from gate.core.policy import Forward
from gate.core.routes import Matched
from gate.http.message import RequestHead
from gate.metrics import Outcome
from tests.gate.harness import Client, Harness, chunked, gate, get, until
from tests.gate.stub_upstream import Link, Recorded, reply
from tests.gate.test_tar_scan import BLOCK, END, FILE, NODE, header, padded

TARGET = "/v1.51/containers/c/archive?path=/w"
ROUTE = "PUT /containers/c/archive"
BIG = header(b"0", 3_000_000) + padded(b"x" * 3_000_000)


async def admit(matched: Matched, head: RequestHead, body: bytes) -> Forward | Denial:
    assert body == b""
    return Forward(target=matched.target, content_type=b"application/x-tar", archive=True)


def put(archive: bytes, framing: str) -> bytes:
    if framing == "length":
        return get(TARGET, f"Content-Length: {len(archive)}", method="PUT") + archive
    pieces = [archive[start : start + 70_001] for start in range(0, len(archive), 70_001)]
    return chunked(TARGET, *pieces, method="PUT")


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("archive", [FILE + END, BIG + FILE + END + bytes(8000), END])
async def test_an_archive_passes_as_it_is(archive: bytes, framing: str) -> None:
    async with gate() as g:
        g.gatekeeper.decide = admit
        client = await g.client()
        for number in range(2):
            assert (await client.ask(put(archive, framing))).status == 200
            assert g.daemon.requests[number].body == archive
            assert g.daemon.requests[number].header("content-type") == "application/x-tar"


class Recorder:
    """A daemon that keeps whatever comes of a body."""

    def __init__(self, g: Harness) -> None:
        self.got = b""
        g.daemon.routes[ROUTE] = self.record
        g.daemon.heads_only.add(ROUTE)

    async def record(self, request: Recorded, link: Link) -> None:
        while data := await link.reader.read(65536):
            self.got += data


REFUSED = [
    (NODE, 403, Rule.ARCHIVE_DEVICE),
    (FILE + NODE, 403, Rule.ARCHIVE_DEVICE),
    (BIG + NODE + BIG, 403, Rule.ARCHIVE_DEVICE),
    (b"\x1f\x8b\x08" + bytes(5000), 403, Rule.ARCHIVE_COMPRESSED),
    (b"no archive" * 1000, 400, Rule.ARCHIVE_MALFORMED),
    (FILE[:-1], 400, Rule.ARCHIVE_MALFORMED),
]


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(("archive", "status", "rule"), REFUSED)
async def test_a_refusal_on_the_way_cuts_the_daemon_off(
    archive: bytes, status: int, rule: Rule, framing: str
) -> None:
    async with gate() as g:
        g.gatekeeper.decide = admit
        recorder = Recorder(g)
        client = await g.client()
        client.send(put(archive, framing))
        answer = await client.answer()
        assert (answer.status, f"[{rule}]" in answer.message) == (status, True)
        assert [denial.codes() for denial, _ in g.gatekeeper.refusals] == [(rule.value,)]
        assert g.count("container.archive_put", Outcome.DENIED) == 1
        await until(lambda: all(link.closed.is_set() for link in g.daemon.links))
        assert NODE[:BLOCK] not in recorder.got
        assert not recorder.got.endswith(b"0\r\n\r\n")
        g.daemon.default = reply()
        assert (await client.ask(get())).status == 200, "the connection lives on"


async def test_a_header_in_two_pieces_never_arrives_whole() -> None:
    async with gate() as g:
        g.gatekeeper.decide = admit
        recorder = Recorder(g)
        client = await g.client()
        archive = FILE + NODE
        client.send(get(TARGET, f"Content-Length: {len(archive)}", method="PUT"))
        middle = len(FILE) + 300
        client.send(archive[:middle])
        await until(lambda: len(recorder.got) == middle)
        client.send(archive[middle:])
        assert (await client.answer()).status == 403
        await until(lambda: all(link.closed.is_set() for link in g.daemon.links))
        assert recorder.got == archive[:middle]


async def test_the_daemons_early_answer_comes_first() -> None:
    async def at_once(request: Recorded, link: Link) -> None:
        await reply(b"{}", "404 Not Found")(request, link)
        await link.closed.wait()

    async with gate() as g:
        g.gatekeeper.decide = admit
        g.daemon.routes[ROUTE] = at_once
        g.daemon.heads_only.add(ROUTE)
        client: Client = await g.client()
        archive = BIG + NODE
        client.send(get(TARGET, f"Content-Length: {len(archive)}", method="PUT"), archive[:600])
        assert (await client.answer()).status == 404
        client.send(archive[600:])
        assert (await client.ask(get())).status == 200
        assert g.gatekeeper.refusals == []


async def test_a_daemon_that_does_not_read_holds_the_client_back() -> None:
    released = asyncio.Event()

    async def slow(request: Recorded, link: Link) -> None:
        await released.wait()
        left = len(archive)
        while left:
            left -= len(await link.reader.read(65536))
        await reply()(request, link)

    archive = header(b"0", 50_000_000) + bytes(-(-50_000_000 // BLOCK) * BLOCK) + END
    async with gate() as g:
        g.gatekeeper.decide = admit
        g.daemon.routes[ROUTE] = slow
        g.daemon.heads_only.add(ROUTE)
        client = await g.client()
        client.send(get(TARGET, f"Content-Length: {len(archive)}", method="PUT"), archive)
        await until(lambda: g.daemon.requests)
        await asyncio.sleep(0.1)
        assert client.writer.transport.get_write_buffer_size() > 30_000_000
        released.set()
        assert (await client.answer()).status == 200
