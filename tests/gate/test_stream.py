"""The shared receive buffer: whatever is slow, nobody's bytes end up in somebody else's stream."""

import asyncio
import hashlib
import random

import pytest

from gate.stream import BUFFER_BYTES, BufferPool
from tests.gate.harness import gate, get
from tests.gate.stub_upstream import Link, Recorded, read_body, reply

TOTAL = 3_000_000
SWITCH = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def test_a_detached_buffer_is_not_handed_out_again_before_it_is_back() -> None:
    pool = BufferPool()
    first = pool.detach()
    second = pool.detach()
    assert len({id(view.obj) for view in (first, second, pool.current)}) == 3
    pool.attach(first)
    pool.detach()
    assert pool.current.obj is first.obj
    for _ in range(100):
        pool.attach(memoryview(bytearray(BUFFER_BYTES)))
    assert len(pool._spare) < 100


def content(seed: str) -> bytes:
    return random.Random(seed).randbytes(TOTAL)


async def download(request: Recorded, link: Link) -> None:
    data = content(request.target)
    if "export" in request.target:
        await link.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % TOTAL)
        await link.send(data)
    elif "logs" in request.target:
        await link.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        sizes = random.Random(request.target)
        position = 0
        while position < TOTAL:
            piece = data[position : position + sizes.choice([1, 700, 40_000, 300_000])]
            position += len(piece)
            await link.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        await link.send(b"0\r\n\r\n")
    else:
        await link.send(SWITCH + data)
        link.writer.write_eof()
        assert await link.reader.read() == data[::-1]


async def upload(request: Recorded, link: Link) -> None:
    digest = hashlib.sha256()
    body = b""
    if request.header("content-length"):
        left = TOTAL
        while left:
            await asyncio.sleep(random.random() / 200)
            part = await link.reader.read(min(left, 90_000))
            left -= len(part)
            digest.update(part)
    else:
        await asyncio.sleep(0.05)
        body = await read_body(request, link.reader)
        digest.update(body)
    await reply(digest.hexdigest().encode())(request, link)


@pytest.mark.parametrize("seed", range(3))
async def test_bytes_stay_apart_under_back_pressure(seed: int) -> None:
    async with gate() as g:
        for name in (f"d{seed}{n}" for n in range(4)):
            g.daemon.routes[f"GET /containers/{name}/export"] = download
            g.daemon.routes[f"GET /containers/{name}/logs"] = download
            g.daemon.routes[f"POST /containers/{name}/attach"] = download
            g.daemon.routes[f"PUT /containers/{name}/archive"] = upload
            g.daemon.heads_only.add(f"PUT /containers/{name}/archive")

        async def slowly(reader: asyncio.StreamReader, size: int) -> bytes:
            parts = []
            while size:
                part = await reader.read(min(size, random.choice([100, 5_000, 200_000])))
                assert part
                parts.append(part)
                size -= len(part)
                if random.random() < 0.2:
                    await asyncio.sleep(random.random() / 100)
            return b"".join(parts)

        async def one(kind: str, name: str) -> None:
            client = await g.client()
            target = f"/containers/{name}/{kind}"
            if kind == "archive":
                data = content(target)
                client.send(get(target, f"Content-Length: {TOTAL}", method="PUT"), data)
                assert (await client.answer()).body.decode() == hashlib.sha256(data).hexdigest()
            elif kind == "archive-chunked":
                target = f"/containers/{name}/archive"
                data = content(target)
                client.send(get(target, "Transfer-Encoding: chunked", method="PUT"))
                for start in range(0, TOTAL, 70_001):
                    piece = data[start : start + 70_001]
                    client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
                client.send(b"0\r\n\r\n")
                assert (await client.answer()).body.decode() == hashlib.sha256(data).hexdigest()
            elif kind == "attach":
                client.send(get(target, "Connection: Upgrade", "Upgrade: tcp", method="POST"))
                await client.head()
                client.send(content(target)[::-1])
                client.finish()
                assert await slowly(client.reader, TOTAL) == content(target)
            elif kind == "export":
                client.send(get(target))
                await client.head()
                assert await slowly(client.reader, TOTAL) == content(target)
            else:
                client.send(get(target))
                assert (await client.answer()).body == content(target)

        kinds = ("export", "logs", "attach", "archive", "archive-chunked")
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                for number in range(4):
                    group.create_task(one(kind, f"d{seed}{number}"))
