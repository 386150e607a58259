import os
import socket
from pathlib import Path

import pytest

from gate.core.facts import BuilderFact, ContainerFact, ExecFact, PathFact, PathType, VolumeFact
from gate.core.policy import (
    BuilderLookup,
    ContainerLookup,
    ExecLookup,
    Lookup,
    PathLookup,
    VolumeLookup,
)
from gate.daemon import DaemonClient
from gate.lookups import Answers, path_fact
from tests.gate.stub_upstream import StubUpstream, reply


def test_paths_are_resolved_through_every_link(short_dir: Path) -> None:
    (short_dir / "real").mkdir()
    (short_dir / "file").write_text("")
    (short_dir / "link").symlink_to("real")
    (short_dir / "real" / "device").symlink_to("/dev/null")
    (short_dir / "loop").symlink_to("loop")
    os.mkfifo(short_dir / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "socket"))
    real = str(short_dir / "real")
    for path, expected in {
        short_dir / "link": (real, PathType.DIRECTORY),
        short_dir / "link" / "new" / "deep": (f"{real}/new/deep", PathType.MISSING),
        short_dir / "file": (str(short_dir / "file"), PathType.FILE),
        short_dir / "link" / "device": ("/dev/null", PathType.DEVICE),
        short_dir / "socket": (str(short_dir / "socket"), PathType.SOCKET),
        short_dir / "fifo": (str(short_dir / "fifo"), PathType.OTHER),
        short_dir / "loop": (str(short_dir / "loop"), PathType.OTHER),
    }.items():
        assert path_fact(str(path)) == PathFact(realpath=expected[0], type_=expected[1]), path


async def test_facts_grow_and_failures_are_not_asked_again(short_dir: Path) -> None:
    async with StubUpstream(short_dir / "d.sock") as daemon:
        daemon.routes["GET /containers/known/json"] = reply(b'{"Id": "full", "Name": "/known"}')
        daemon.routes["GET /containers/unknown/json"] = reply(b"{}", status="404 Not Found")
        daemon.routes["GET /containers/odd/json"] = reply(b'{"Id": 5}')
        daemon.routes["GET /volumes/v"] = reply(b'{"Name": "v", "Options": {"o": "bind"}}')
        daemon.routes["GET /exec/e/json"] = reply(
            b'{"ID": "full-e", "ContainerID": "full", "Running": false}'
        )
        daemon.routes["GET /exec/gone/json"] = reply(b"{}", status="404 Not Found")
        daemon.routes["GET /info"] = reply(b'{"ServerVersion": "28.5.2", "CDISpecDirs": null}')
        client = DaemonClient(daemon.path)
        answers = Answers(client)
        wanted = (
            ContainerLookup("known"), ContainerLookup("unknown"), ContainerLookup("odd"), VolumeLookup("v"),
            PathLookup("/dev/null"), ExecLookup("e"), ExecLookup("gone"), BuilderLookup(),
        )  # fmt: skip
        try:
            assert await answers.ask(wanted)
            asked = len(daemon.requests)
            assert not await answers.ask(wanted)
            assert len(daemon.requests) == asked
        finally:
            await client.close()
    assert answers.facts[ExecLookup("e")] == ExecFact(id="full-e", container="full")
    assert answers.facts[ExecLookup("gone")] is None
    assert answers.facts[BuilderLookup()] == BuilderFact(version="28.5.2", spec_dirs=None)
    known, volume = answers.facts[ContainerLookup("known")], answers.facts[VolumeLookup("v")]
    assert isinstance(known, ContainerFact)
    assert known.id == "full"
    assert isinstance(volume, VolumeFact)
    assert volume.options == {"o": "bind"}
    assert answers.facts[ContainerLookup("unknown")] is None
    assert set(answers.failures) == {ContainerLookup("odd")}


@pytest.mark.parametrize(
    "lookup", [ContainerLookup("c"), VolumeLookup("v"), ExecLookup("e"), BuilderLookup()]
)
async def test_a_daemon_that_is_gone_is_a_failure_not_an_answer(short_dir: Path, lookup: Lookup) -> None:
    client = DaemonClient(short_dir / "absent.sock")
    answers = Answers(client)
    try:
        assert await answers.ask((lookup,))
    finally:
        await client.close()
    assert answers.facts == {}
    assert set(answers.failures) == {lookup}
