"""Real clients notice nothing: the same output and exit status through the gate as on the raw socket."""

import contextlib
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.engine import IMAGE, Docker
from tests.system.clients import RUN, Result, both, in_terminal, plain
from tests.system.conftest import Gated


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("echo out; echo err >&2", 0),
        ("exit 7", 7),
        ("no-such-command", 127),
        ("sh -c 'kill -9 $$'; exit $?", 137),
    ],
)
def test_run_gives_output_and_exit_status(gated28: Gated, script: str, code: int) -> None:
    result = both(gated28, plain(*RUN, IMAGE, "sh", "-c", script))
    assert isinstance(result, tuple)
    assert result[0] == code


def test_run_of_a_command_that_does_not_exist_tells_the_daemons_words(gated28: Gated) -> None:
    result = both(gated28, plain(*RUN, IMAGE, "/absent"))
    assert isinstance(result, tuple)
    assert result[0] == 127


def test_run_with_piped_input_sees_its_end(gated28: Gated) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    result = both(gated28, plain(*RUN, "-i", IMAGE, "sh", "-c", "cat; echo end; exit 3", stdin=text))
    assert isinstance(result, tuple)
    assert result[:2] == (3, f"{text}end\n")


def test_run_on_a_terminal(gated28: Gated) -> None:
    result = both(
        gated28, in_terminal(*RUN, "-t", IMAGE, "sh", "-c", "test -t 1 && echo is a terminal; exit 4")
    )
    assert result == (4, "is a terminal\n")


def test_run_and_exec_interactively_on_a_terminal(gated28: Gated) -> None:
    script = "stty -echo; echo ready; read word; echo got $word; exit 5"
    result = both(gated28, in_terminal(*RUN, "-it", IMAGE, "sh", "-c", script, keys=b"hello\n"))
    assert result == (5, "ready\ngot hello\n")
    gated28.raw.ok("run", "-d", "--name", "shell", "--network", "none", IMAGE, "sleep", "60")
    try:
        result = both(gated28, in_terminal("exec", "-it", "shell", "sh", "-c", script, keys=b"again\n"))
        assert result == (5, "ready\ngot again\n")
    finally:
        gated28.raw.ok("rm", "-f", "shell")


def test_exec_with_and_without_input(gated28: Gated, sleeper: str) -> None:
    assert both(gated28, plain("exec", "-i", sleeper, "cat", stdin="hi\n")) == (0, "hi\n", "")
    assert both(gated28, plain("exec", sleeper, "sh", "-c", "echo a; echo b >&2; exit 9")) == (
        9,
        "a\n",
        "b\n",
    )
    assert both(gated28, plain("exec", "-d", sleeper, "true")) == (0, "", "")


def test_attach_passes_both_streams_and_the_end(gated28: Gated) -> None:
    def action(cli: Docker) -> Result:
        cli.ok(
            "create",
            "-i",
            "--name",
            "attached",
            "--network",
            "none",
            IMAGE,
            "sh",
            "-c",
            "cat; echo err >&2; exit 6",
        )
        try:
            cli.ok("start", "attached")
            done = cli.run("attach", "attached", stdin="through\n")
            return done.returncode, done.stdout, done.stderr
        finally:
            cli.ok("rm", "-f", "attached")

    assert both(gated28, action) == (6, "through\n", "err\n")


def test_following_logs_ends_with_the_container(gated28: Gated) -> None:
    def action(cli: Docker) -> Result:
        script = "for i in 1 2 3; do echo $i; sleep 0.2; done"
        cli.ok("run", "-d", "--name", "logged", "--network", "none", IMAGE, "sh", "-c", script)
        try:
            done = cli.run("logs", "-f", "logged")
            return done.returncode, done.stdout, done.stderr
        finally:
            cli.ok("rm", "-f", "logged")

    assert both(gated28, action) == (0, "1\n2\n3\n", "")


def test_a_client_that_stops_following_frees_the_daemons_stream(gated28: Gated, sleeper: str) -> None:
    def upstreams() -> int:
        count = 0
        for link in Path(f"/proc/{gated28.machine.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                count += str(link.readlink()).startswith("socket:")
        return count

    counts = [upstreams()]
    while len(counts) < 10 or len(set(counts[-10:])) > 1:  # until the tests before have let go
        time.sleep(0.05)
        counts.append(upstreams())
    before = counts[-1]
    follower = gated28.gate.popen("logs", "-f", sleeper, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while upstreams() <= before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    follower.kill()
    follower.wait()
    while upstreams() > before:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_events_arrive_while_they_happen(gated28: Gated) -> None:
    def action(cli: Docker) -> list[str]:
        watcher = cli.popen(
            "events",
            "--filter",
            "type=container",
            "--format",
            "{{.Action}}",
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watcher.stdout is not None
        try:
            with watcher.stdout:
                time.sleep(0.5)  # the client shows nothing when it has subscribed
                cli.ok(*RUN, "--name", "seen", IMAGE, "true")
                return [watcher.stdout.readline() for _ in range(5)]  # type: ignore[misc]
        finally:
            watcher.kill()
            watcher.wait()

    assert both(gated28, action) == ["create\n", "attach\n", "start\n", "die\n", "destroy\n"]


def test_stats_once_has_a_row(gated28: Gated, sleeper: str) -> None:
    def action(cli: Docker) -> tuple[int, str]:
        done = cli.run("stats", "--no-stream", "--format", "{{.Name}} {{.PIDs}}", sleeper)
        return done.returncode, done.stdout

    assert both(gated28, action) == (0, f"{sleeper} 1\n")


def test_system_df_volumes_and_networks(gated28: Gated) -> None:
    def action(cli: Docker) -> tuple[int, str, str, str, str]:
        cli.ok("volume", "create", "--label", "a=b", "vol")
        cli.ok("network", "create", "--subnet", "10.213.0.0/24", "net")
        volumes = cli.ok(
            "volume", "ls", "--filter", "label=a=b", "--format", "{{.Name}} {{.Driver}} {{.Labels}}"
        )
        networks = cli.ok("network", "ls", "--filter", "name=net", "--format", "{{.Name}} {{.Driver}}")
        address = cli.ok(
            "run", "--rm", "--network", "net", IMAGE, "sh", "-c", "ip -4 addr show eth0 | grep -c 10.213.0"
        )
        used = cli.run("system", "df", "--format", "{{.Type}} {{.TotalCount}}")
        cli.ok("volume", "rm", "vol")
        cli.ok("network", "rm", "net")
        return used.returncode, used.stdout, volumes, networks, address

    result = both(gated28, action)
    assert isinstance(result, tuple)
    assert result[2:] == ("vol local a=b\n", "net bridge\n", "1\n")


def test_many_clients_at_once_each_get_their_own_answer(gated28: Gated) -> None:
    results: dict[int, str] = {}

    def one(number: int) -> None:
        results[number] = gated28.gate.ok(*RUN, "-i", IMAGE, "cat", stdin=f"client {number}\n")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {number: f"client {number}\n" for number in range(8)}
