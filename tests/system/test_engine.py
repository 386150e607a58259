"""Facts about real daemons that the gate's rules and the projection rest on, tried on both engines.

When one of these fails with a new engine, the design has to be read again, not the test.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.engine import EXAMPLE_UUID, IMAGE, Daemon, Engine, example_spec, write_spec

JSON = {"Content-Type": "application/json"}


def cdi_request(*names: str) -> dict[str, object]:
    return {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": list(names)}], "NetworkMode": "none"}


def create(daemon: Daemon, body: bytes | Mapping[str, object]) -> str:
    answer = daemon.request("POST", "/containers/create", body, JSON)
    assert answer.status == 201, answer.body
    return str(answer.json()["Id"])


def start(daemon: Daemon, container: str) -> int:
    return daemon.request("POST", f"/containers/{container}/start").status


def host_config(daemon: Daemon, container: str) -> Mapping[str, object]:
    found = daemon.request("GET", f"/containers/{container}/json").json()["HostConfig"]
    assert isinstance(found, dict)
    return found


def running(daemon: Daemon, container: str) -> bool:
    return bool(daemon.request("GET", f"/containers/{container}/json").json()["State"]["Running"])


class TestCdi:
    def test_create_takes_unknown_names_and_start_refuses_them(self, each_daemon: Daemon) -> None:
        container = create(
            each_daemon, {"Image": "bb:1", "Cmd": ["true"], "HostConfig": cdi_request("nvidia.com/gpu=9")}
        )
        assert start(each_daemon, container) == 500

    def test_a_spec_renamed_in_or_removed_counts_for_the_next_request(self, each_daemon: Daemon) -> None:
        body = {"Image": "bb:1", "Cmd": ["true"], "HostConfig": cdi_request("amd.com/gpu=new")}
        spec = {
            **example_spec(),
            "kind": "amd.com/gpu",
            "devices": [{"name": "new", "containerEdits": {"env": ["A=b"]}}],
        }
        container = create(each_daemon, body)
        for _ in range(5):
            assert start(each_daemon, container) == 500
            path = write_spec(each_daemon.cdi_dir, spec, "amd.json")
            assert start(each_daemon, container) == 204
            each_daemon.request("POST", f"/containers/{container}/wait")
            path.unlink()

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("0", {"nvidia0 1 5", "nvidiactl 1 3"}),
            ("1", {"nvidia1 1 7", "nvidiactl 1 3"}),
            (EXAMPLE_UUID, {"nvidia0 1 5", "nvidiactl 1 3"}),
            ("all", {"nvidia0 1 5", "nvidia1 1 7", "nvidiactl 1 3"}),
        ],
    )
    def test_the_cli_injects_nodes_and_environment(
        self, each_daemon: Daemon, name: str, expected: set[str]
    ) -> None:
        script = (
            'cd /dev; for n in nvidia*; do echo $n $(stat -c "%t %T" $n); done; echo $NVIDIA_VISIBLE_DEVICES'
        )
        device = f"nvidia.com/gpu={name}"
        seen = each_daemon.docker.ok(
            "run", "--rm", "--network", "none", "--device", device, IMAGE, "sh", "-c", script
        )
        assert set(seen.splitlines()) == {*expected, "void"}

    def test_compose_requests_cdi_devices(self, each_daemon: Daemon, tmp_path: Path) -> None:
        (tmp_path / "compose.yaml").write_text(
            "services:\n  a:\n    image: bb:1\n    network_mode: none\n"
            "    command: test -c /dev/nvidia0\n    devices: [nvidia.com/gpu=0]\n"
        )
        done = each_daemon.docker.run("compose", "up", "--exit-code-from", "a", cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    def test_a_restarted_daemon_resolves_again(self, daemon: Callable[..., Daemon], engine28: Engine) -> None:
        instance = daemon(engine28)
        path = write_spec(instance.cdi_dir, example_spec())
        policy = {"RestartPolicy": {"Name": "always"}, **cdi_request("nvidia.com/gpu=0")}
        container = create(instance, {"Image": "bb:1", "Cmd": ["sleep", "1000"], "HostConfig": policy})
        assert start(instance, container) == 204
        instance.kill()
        instance.start()
        assert running(instance, container)
        path.unlink()
        instance.kill()
        instance.start()
        assert not running(instance, container)


class TestReading:
    @pytest.mark.parametrize(
        "body",
        [
            b'{"Image":"bb:1","Cmd":["true"],"hostconfig":{"privileged":true}}',
            b'{"Image":"bb:1","Cmd":["true"],"HOSTCONFIG":{"PRIVILEGED":true}}',
            '{"Image":"bb:1","Cmd":["true"],"Ho\u017ftConfig":{"Privileged":true}}'.encode(),
            b'{"Image":"bb:1","Cmd":["true"],"HostConfig":{"\\u0050rivileged":true}}',
            b'{"Image":"bb:1","Cmd":["true"],"HostConfig":{"Privileged":true},"HostConfig":{"Memory":0}}',
            b'{"Image":"bb:1","Cmd":["true"],"HostConfig":{"Privileged":true,"privileged":null}}',
        ],
    )
    def test_folded_escaped_and_repeated_keys_count(self, each_daemon: Daemon, body: bytes) -> None:
        assert host_config(each_daemon, create(each_daemon, body))["Privileged"] is True

    def test_top_level_host_config_counts_before_27(self, each_daemon: Daemon) -> None:
        container = create(each_daemon, b'{"Image":"bb:1","Cmd":["true"],"Privileged":true}')
        assert host_config(each_daemon, container)["Privileged"] is (each_daemon.engine.major < 27)

    def test_encoded_paths_reach_create(self, each_daemon: Daemon) -> None:
        answer = each_daemon.request(
            "POST", "/containers%2F%63reate", b'{"Image":"bb:1","Cmd":["true"]}', JSON
        )
        assert answer.status == 201


class TestBuild:
    def test_plain_builds_work(self, each_daemon: Daemon, tmp_path: Path) -> None:
        (tmp_path / "Dockerfile").write_text("FROM bb:1\nRUN echo made > /made\n")
        for buildkit in ("1", "0"):
            each_daemon.docker.ok(
                "build", "-t", f"made:{buildkit}", ".", cwd=tmp_path, env={"DOCKER_BUILDKIT": buildkit}
            )
            assert each_daemon.docker.ok("run", "--rm", f"made:{buildkit}", "cat", "/made") == "made\n"

    @pytest.mark.parametrize("options", [(), ("--allow", "device")])
    def test_devices_are_refused_by_default(
        self, each_daemon: Daemon, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        (tmp_path / "Dockerfile").write_text(
            "FROM bb:1\nRUN --device=nvidia.com/gpu=0 test -c /dev/nvidia0\n"
        )
        done = each_daemon.docker.run("build", "--no-cache", *options, ".", cwd=tmp_path)
        assert done.returncode != 0


class TestPrivateDaemon:
    def test_a_killed_daemon_leaves_no_process_and_no_mount(
        self, daemon: Callable[..., Daemon], each_engine: Engine
    ) -> None:
        instance = daemon(each_engine)
        instance.docker.ok("run", "-d", "bb:1", "sleep", "1000")
        assert processes_of(instance)
        instance.kill()
        assert not processes_of(instance)
        assert str(instance.directory) not in Path("/proc/self/mounts").read_text()

    def test_a_stopped_daemon_starts_again_with_its_containers(
        self, daemon: Callable[..., Daemon], each_engine: Engine
    ) -> None:
        instance = daemon(each_engine)
        container = create(instance, {"Image": "bb:1", "Cmd": ["true"]})
        instance.stop()
        instance.start()
        assert start(instance, container) == 204


def processes_of(daemon: Daemon) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended while we looked
            continue
        if str(daemon.directory) in command:
            found.append(command)
    return found
