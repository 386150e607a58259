import json
import socket
import threading
from pathlib import Path

import pytest

from base.errors import MalformedError, UnreachableError
from gate.core.denial import Rule
from gate.core.repo import RepoPolicy
from machine.core.engine_info import Contents
from machine.docker import ANSWER_LIMIT_BYTES, Daemon
from tests.fake_daemon import fake_daemon

LIST = (
    "GET /containers/json?filters=%7B%22status%22%3A%5B%22running%22%2C%22paused%22%2C%22restarting%22%5D%7D"
)


def inspection(identity: str, *devices: str) -> tuple[int, object]:
    requests = [{"Driver": "cdi", "DeviceIDs": list(devices)}]
    return 200, {"Id": identity, "Name": f"/{identity}", "HostConfig": {"DeviceRequests": requests}}


def test_nobody_listens(short_dir: Path) -> None:
    daemon = Daemon(short_dir / "none.sock")
    assert not daemon.answers()
    assert not daemon.accepts()
    with pytest.raises(UnreachableError):
        daemon.info()


def test_a_socket_path_that_is_too_long_is_not_reachable() -> None:
    assert not Daemon(Path("/" + 200 * "x")).answers()
    assert not Daemon(Path("/" + 200 * "x")).accepts()


def test_a_listener_that_never_answers_accepts_only(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "d.sock"))
        listener.listen()
        daemon = Daemon(short_dir / "d.sock", timeout_s=0.05)
        assert daemon.accepts()
        assert not daemon.answers()


def test_answers(short_dir: Path) -> None:
    answers: dict[str, tuple[int, object]] = {"GET /_ping": (200, b"OK")}
    with fake_daemon(short_dir / "d.sock", answers):
        assert Daemon(short_dir / "d.sock").answers()
        answers["GET /_ping"] = (500, b"")
        assert not Daemon(short_dir / "d.sock").answers()


def test_info_and_counts(short_dir: Path) -> None:
    said = {"ServerVersion": "28.5.2", "CDISpecDirs": ["/c"], "Containers": 3, "Images": 2}
    answers: dict[str, tuple[int, object]] = {"GET /info": (200, said)}
    with fake_daemon(short_dir / "d.sock", answers):
        daemon = Daemon(short_dir / "d.sock")
        assert daemon.info().cdi_spec_dirs == ("/c",)
        assert daemon.contents() == Contents(containers=3, images=2, volumes=None, size_bytes=None)
        usage: dict[str, object] = {"LayersSize": 7, "Containers": [], "Images": [{}], "Volumes": None}
        answers["GET /system/df"] = (200, usage)
        assert daemon.contents() == Contents(containers=0, images=1, volumes=0, size_bytes=7)
        answers["GET /info"] = (200, {"ServerVersion": "28.5.2"})
        with pytest.raises(MalformedError):
            daemon.contents()
        answers["GET /info"] = (500, {"message": "no"})
        with pytest.raises(UnreachableError):
            daemon.info()


def test_an_endless_answer_is_cut_off(short_dir: Path) -> None:
    body = b'{"ServerVersion": "' + ANSWER_LIMIT_BYTES * b"x"
    with fake_daemon(short_dir / "d.sock", {"GET /info": (200, body)}), pytest.raises(MalformedError):
        Daemon(short_dir / "d.sock").info()


def test_holders_are_running_containers_with_one_of_the_devices(short_dir: Path) -> None:
    answers: dict[str, tuple[int, object]] = {
        LIST: (200, [{"Id": "one"}, {"Id": "two"}, {"Id": "gone"}]),
        "GET /containers/one/json": inspection("one", "a.b/c=0"),
        "GET /containers/two/json": inspection("two", "a.b/c=1"),
    }
    with fake_daemon(short_dir / "d.sock", answers):
        daemon = Daemon(short_dir / "d.sock")
        assert [each.id for each in daemon.holders(["a.b/c=0"])] == ["one"]
        assert daemon.holders([]) == ()
        answers["GET /containers/one/json"] = (500, {})
        with pytest.raises(UnreachableError):
            daemon.holders(["a.b/c=0"])


def test_runs_are_seen_as_a_watcher_sees_them(short_dir: Path) -> None:
    state = {"Running": True, "StartedAt": "2026-12-04T10:00:00Z"}
    held = inspection("held", "nvidia.com/gpu=0")[1]
    answers: dict[str, tuple[int, object]] = {
        LIST: (200, [{"Id": "held"}, {"Id": "raw"}, {"Id": "gone"}]),
        "GET /containers/held/json": (200, {**held, "State": state}),
        "GET /containers/raw/json": (
            200,
            {"Id": "raw", "Name": "/raw", "HostConfig": {"Privileged": True}, "State": state},
        ),
    }
    with fake_daemon(short_dir / "d.sock", answers):
        held_run, raw_run = Daemon(short_dir / "d.sock").runs(RepoPolicy())
    assert (held_run.name, [str(each) for each in held_run.devices]) == ("held", ["nvidia.com/gpu=0"])
    assert [each.rule for each in raw_run.raw] == [Rule.PRIVILEGED]


@pytest.mark.parametrize("status", [204, 304, 404])
def test_stopping_what_has_ended_is_fine(short_dir: Path, status: int) -> None:
    with fake_daemon(short_dir / "d.sock", {"POST /containers/one/stop?t=10": (status, b"")}) as server:
        Daemon(short_dir / "d.sock").stop("one")
    assert server.asked == ["POST /containers/one/stop?t=10"]


def test_a_container_that_cannot_be_stopped(short_dir: Path) -> None:
    said = json.dumps({"message": "no"}).encode()
    with (
        fake_daemon(short_dir / "d.sock", {"POST /containers/one/stop?t=10": (500, said)}),
        pytest.raises(UnreachableError),
    ):
        Daemon(short_dir / "d.sock").stop("one")


def test_chunked_answers(short_dir: Path) -> None:
    said = {"ServerVersion": "28.5.2", "Containers": 3, "Images": 2}
    with fake_daemon(short_dir / "d.sock", {"GET /info": (200, said)}) as server:
        server.chunked = True
        assert Daemon(short_dir / "d.sock").contents().containers == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"nonsense", b"HTTP/1.1 200 OK\r\n", b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    ],
)  # fmt: skip
def test_answers_that_break_off_are_no_answers(short_dir: Path, answer: bytes) -> None:
    def serve(listener: socket.socket) -> None:
        link, _ = listener.accept()
        with link:
            link.recv(4096)
            link.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "d.sock"))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with pytest.raises(UnreachableError):
            Daemon(short_dir / "d.sock").info()
        thread.join()
