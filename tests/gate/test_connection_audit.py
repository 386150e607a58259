"""The gatekeeper hears of bytes that are no request."""

import os

import pytest

from gate.http.message import HttpCode
from tests.gate.harness import gate

CREATE = b"POST /v1.51/containers/create HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET /_ping HTTP/1.1\r\nHost: d\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        CREATE + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
async def test_told_once_with_who_sent_them(raw: bytes) -> None:
    async with gate() as g:
        client = await g.client()
        assert (await client.ask(raw)).status == 400
        await client.rest()
        ((code, peer),) = g.gatekeeper.unread
        assert code in HttpCode
        assert (peer.pid, peer.uid) == (os.getpid(), os.getuid())
        assert g.gatekeeper.refusals == []
