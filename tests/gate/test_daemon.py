from pathlib import Path

import pytest

from base.errors import MalformedError, UnreachableError
from gate.daemon import DaemonClient
from tests.gate.stub_upstream import StubUpstream, reply

JSON = "Content-Type: application/json\r\n"


async def test_objects_come_back_and_404_is_none(short_dir: Path) -> None:
    async with StubUpstream(short_dir / "d.sock") as daemon:
        daemon.routes["GET /containers/c1/json"] = reply(b'{"Id": "full"}', headers=JSON)
        daemon.routes["GET /volumes/v"] = reply(b'{"Name": "v"}', headers=JSON)
        daemon.routes["GET /exec/e/json"] = reply(b'{"message": "no"}', status="404 Not Found", headers=JSON)
        daemon.routes["GET /info"] = reply(b'{"ServerVersion": "28.5.2"}', headers=JSON)
        client = DaemonClient(daemon.path)
        try:
            assert await client.container("c1") == {"Id": "full"}
            assert await client.volume("v") == {"Name": "v"}
            assert await client.exec_("e") is None
            assert (await client.info())["ServerVersion"] == "28.5.2"
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"[]", "200 OK", MalformedError),
        (b"{", "200 OK", MalformedError),
        (b"{}", "500 Internal Server Error", UnreachableError),
        (b"{}", "301 Moved Permanently", UnreachableError),
    ],
)
async def test_other_answers_are_errors(
    short_dir: Path, body: bytes, status: str, error: type[Exception]
) -> None:
    async with StubUpstream(short_dir / "d.sock") as daemon:
        daemon.routes["GET /containers/c/json"] = reply(
            body, status=status, headers="Location: /x\r\n" + JSON
        )
        client = DaemonClient(daemon.path)
        try:
            with pytest.raises(error):
                await client.container("c")
        finally:
            await client.close()


async def test_nobody_there_is_unreachable_and_a_daemon_that_comes_is_found(short_dir: Path) -> None:
    client = DaemonClient(short_dir / "d.sock")
    try:
        with pytest.raises(UnreachableError):
            await client.info()
        async with StubUpstream(short_dir / "d.sock") as daemon:
            daemon.routes["GET /info"] = reply(b"{}", headers=JSON)
            assert await client.info() == {}
        with pytest.raises(UnreachableError):
            await client.info()
    finally:
        await client.close()


async def test_a_name_with_slashes_stays_one_segment(short_dir: Path) -> None:
    async with StubUpstream(short_dir / "d.sock") as daemon:
        client = DaemonClient(daemon.path)
        try:
            with pytest.raises(MalformedError):
                await client.container("a/../../info")
        finally:
            await client.close()
        assert daemon.requests[0].target == "/containers/a%2F..%2F..%2Finfo/json"
