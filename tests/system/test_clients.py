"""Real clients notice nothing: the same output and exit status through the gate as on the raw socket."""

import os
import pty
import re
import select
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import aiodocker
import docker as docker_py
import pytest

from tests.engine import IMAGE, Docker
from tests.system.conftest import Gated

RUN = ("run", "--rm", "--network", "none")
Result = tuple[int, str, str]


def both(gated: Gated, action: Callable[[Docker], object]) -> object:
    """What `action` gives on the raw socket, after checking that the gate gives the same."""
    raw = action(gated.raw)
    through_gate = action(gated.gate)
    assert through_gate == raw
    return raw


def plain(*arguments: str, stdin: str | None = None) -> Callable[[Docker], Result]:
    def action(cli: Docker) -> Result:
        done = cli.run(*arguments, stdin=stdin)
        return done.returncode, done.stdout, done.stderr

    return action


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


def in_terminal(*arguments: str, keys: bytes = b"") -> Callable[[Docker], tuple[int, str]]:
    """The client on a terminal of its own; what the terminal shows, and the exit status."""

    def action(cli: Docker) -> tuple[int, str]:
        terminal, side = pty.openpty()
        client = subprocess.Popen(
            cli.command(*arguments), env={**cli.env(), "TERM": "dumb"}, stdin=side, stdout=side, stderr=side,
            start_new_session=True,
        )  # fmt: skip
        os.close(side)
        shown = b""
        pending = keys
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ready, _, _ = select.select([terminal], [], [], 0.2)
            if ready:
                try:
                    part = os.read(terminal, 4096)
                except OSError:
                    break
                shown += part
                if pending and b"ready" in shown:
                    os.write(terminal, pending)
                    pending = b""
            elif client.poll() is not None:
                break
        os.close(terminal)
        return client.wait(10), shown.decode().replace("\r", "")

    return action


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


@pytest.fixture
def sleeper(gated28: Gated) -> str:
    name = "sleeper"
    gated28.raw.run("rm", "-f", name)
    gated28.raw.ok("run", "-d", "--name", name, "--network", "none", IMAGE, "sleep", "300")
    return name


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
        descriptors = Path(f"/proc/{gated28.machine.pid}/fd").iterdir()
        return sum(str(link.readlink()).startswith("socket:") for link in descriptors)

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


def test_copies_in_and_out_keep_every_byte(gated28: Gated, sleeper: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "data").write_bytes(os.urandom(3_000_000))
    (source / "link").symlink_to("data")

    def action(cli: Docker) -> tuple[bytes, str]:
        cli.ok("cp", str(source), f"{sleeper}:/tmp/in")
        out = tmp_path / cli.host.rpartition("/")[2] / "out"
        out.parent.mkdir(exist_ok=True)
        cli.ok("cp", f"{sleeper}:/tmp/in", str(out))
        cli.ok("exec", sleeper, "rm", "-r", "/tmp/in")
        return (out / "data").read_bytes(), str((out / "link").readlink())

    assert both(gated28, action) == ((source / "data").read_bytes(), "data")


def test_a_copy_into_a_missing_container_tells_so(gated28: Gated, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(50_000_000))

    def action(cli: Docker) -> tuple[int, str]:
        done = cli.run("cp", str(big), "absent:/")
        return done.returncode, done.stderr.splitlines()[-1]  # before it, what the client says of its pipe

    result = both(gated28, action)
    assert isinstance(result, tuple)
    assert result[0] == 1


def test_saved_images_load_again(gated28: Gated, tmp_path: Path) -> None:
    def action(cli: Docker) -> tuple[list[str], str, str]:
        archive = tmp_path / "image.tar"
        cli.ok("tag", IMAGE, "saved:1")
        cli.ok("save", "-o", str(archive), "saved:1")
        with tarfile.open(archive) as saved:
            names = sorted(saved.getnames())
        cli.ok("rmi", "saved:1")
        loaded = cli.ok("load", "-i", str(archive))
        piped = subprocess.run(
            f"'{cli.command()[0]}' save saved:1 | '{cli.command()[0]}' load", shell=True, env=cli.env(),
            text=True, capture_output=True, check=True,
        )  # fmt: skip
        return names, loaded, piped.stdout

    both(gated28, action)


DOCKERFILE = f"FROM {IMAGE}\nARG WORD\nRUN echo $WORD > /built\nCOPY file /file\nCMD cat /built /file\n"


@pytest.mark.parametrize("buildkit", ["1", "0"])
def test_builds(gated28: Gated, tmp_path: Path, buildkit: str) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "file").write_text("copied\n")

    def action(cli: Docker) -> str:
        cli.ok(
            "build", "--no-cache", "--network", "none", "--build-arg", "WORD=argued", "-t", "built:1",
            str(tmp_path), env={"DOCKER_BUILDKIT": buildkit},
        )  # fmt: skip
        return cli.ok(*RUN, "built:1")

    assert both(gated28, action) == "argued\ncopied\n"


def test_a_failing_build_shows_its_output_and_fails(gated28: Gated, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo about to fail && exit 3\n")
    for buildkit in ("1", "0"):
        done = gated28.gate.run(
            "build", "--network", "none", str(tmp_path), env={"DOCKER_BUILDKIT": buildkit}
        )
        raw = gated28.raw.run("build", "--network", "none", str(tmp_path), env={"DOCKER_BUILDKIT": buildkit})
        assert done.returncode == raw.returncode != 0
        assert "about to fail" in done.stdout + done.stderr


COMPOSE = f"""
services:
  writer:
    image: {IMAGE}
    command: sh -c 'echo written > /data/file; echo writer done'
    volumes: [shared:/data]
  reader:
    image: {IMAGE}
    command: sh -c 'cat /data/file; echo reader done'
    volumes: [shared:/data]
    depends_on: {{writer: {{condition: service_completed_successfully}}}}
volumes: {{shared: {{}}}}
"""


def test_compose_up_logs_down(gated28: Gated, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE)

    def action(cli: Docker) -> tuple[list[str], list[int]]:
        compose = (
            "compose",
            "-p",
            "proj",
            "--project-directory",
            str(tmp_path),
            "-f",
            str(tmp_path / "compose.yaml"),
        )
        up = cli.run(*compose, "up", "--no-color")
        logs = cli.run(*compose, "logs", "--no-color")
        down = cli.run(*compose, "down", "-v", "--timeout", "0")
        lines = sorted(re.sub(r"\s+", " ", line) for line in logs.stdout.splitlines())
        codes = [done.returncode for done in (up, logs, down)]
        assert codes == [0, 0, 0], up.stderr + logs.stderr + down.stderr
        return lines, codes

    result = both(gated28, action)
    assert isinstance(result, tuple)
    assert result[0] == ["reader-1 | reader done", "reader-1 | written", "writer-1 | writer done"]


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


def test_docker_py(gated28: Gated) -> None:
    def action(cli: Docker) -> tuple[bytes, bytes, int, bytes]:
        client = docker_py.DockerClient(base_url=cli.host, version="auto")
        try:
            output = client.containers.run(IMAGE, ["echo", "hi"], remove=True, network_mode="none")
            container = client.containers.run(IMAGE, ["sleep", "60"], detach=True, network_mode="none")
            try:
                code, executed = container.exec_run(["sh", "-c", "echo out; exit 2"])
                data = BytesIO()
                with tarfile.open(fileobj=data, mode="w") as archive:
                    member = tarfile.TarInfo("f")
                    member.size = 4
                    archive.addfile(member, BytesIO(b"data"))
                container.put_archive("/tmp", data.getvalue())
                stream, _ = container.get_archive("/tmp/f")
                with tarfile.open(fileobj=BytesIO(b"".join(stream))) as archive:
                    copied = archive.extractfile("f")
                    assert copied is not None
                    return output, executed, code, copied.read()
            finally:
                container.remove(force=True)
        finally:
            client.close()

    assert both(gated28, action) == (b"hi\n", b"out\n", 2, b"data")


async def test_aiodocker(gated28: Gated) -> None:
    async def action(cli: Docker) -> tuple[list[str], int, list[str]]:
        async with aiodocker.Docker(url=cli.host) as client:
            container = await client.containers.run(
                {"Image": IMAGE, "Cmd": ["sh", "-c", "echo one; sleep 0.3; echo two; exit 8"],
                 "HostConfig": {"NetworkMode": "none"}}
            )  # fmt: skip
            try:
                lines = [line async for line in container.log(stdout=True, follow=True)]
                status = await container.wait()
            finally:
                await container.delete(force=True)
            names = sorted(tag for image in await client.images.list() for tag in image["RepoTags"] or ())
            return lines, status["StatusCode"], names

    raw = await action(gated28.raw)
    assert await action(gated28.gate) == raw
    assert raw[:2] == (["one\n", "two\n"], 8)


def test_a_gibibyte_passes_without_growth(gated28: Gated, sleeper: str, tmp_path: Path) -> None:
    """`cp` and `load` of 1 GiB each: the gate's peak memory stays where it was, give or take its buffers."""
    gigabyte = tmp_path / "big"
    with gigabyte.open("wb") as file:
        file.truncate(1 << 30)
    image = tmp_path / "image.tar"
    machine = gated28.machine
    machine.memory_kb()
    peak = machine.memory_kb("VmHWM")
    gated28.gate.ok("cp", str(gigabyte), f"{sleeper}:/dev/shm/../../tmp/big", timeout_s=55)
    gated28.raw.ok("exec", sleeper, "sh", "-c", "test $(stat -c %s /tmp/big) = 1073741824 && rm /tmp/big")
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY big /big\n")
    gated28.raw.ok("build", "-q", "-t", "big:1", "--network", "none", str(tmp_path), timeout_s=55)
    gated28.raw.ok("save", "-o", str(image), "big:1", timeout_s=55)
    gated28.raw.ok("rmi", "-f", "big:1")
    gated28.gate.ok("load", "-i", str(image), timeout_s=55)
    gated28.raw.ok("rmi", "-f", "big:1")
    assert machine.memory_kb("VmHWM") - peak < 8 * 1024


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
