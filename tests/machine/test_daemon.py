import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from base.errors import NotFoundError, RdcError, RefusedError, UnreachableError
from base.layout import Layout
from machine.core.settings import EngineSettings, NetworkMode
from machine.core.subnets import addresses
from machine.daemon import ManagedDaemon
from machine.docker import Daemon
from machine.network import kept_pool
from machine.process import Process, processes
from tests.engine import IMAGE, Docker, Engine, newest

SLEEPING = ("--network", "none", "--stop-signal", "KILL", IMAGE, "sleep", "1000")
GUID = "6af613b6-569c-4c22-9c37-2ed93f31d3af"
DEVICE = "nvidia.com/gpu=0"
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/zero"}]}}
    ],
}


def managed(root: Path, engine: Engine, **changes: object) -> ManagedDaemon:
    daemon = ManagedDaemon(
        layout=Layout(root),
        guid=GUID,
        name="gpu-a",
        settings=EngineSettings(dir=str(engine.bin_dir)),
        environ={"PATH": os.environ["PATH"], "HTTPS_PROXY": "http://proxy.invalid"},
    )
    return dataclasses.replace(daemon, **changes)


def bring_up(daemon: ManagedDaemon) -> Process:
    process = daemon.start()
    deadline = time.monotonic() + 30
    while not daemon.ready(process):
        assert time.monotonic() < deadline, daemon.log.read_text()
        time.sleep(0.05)
    return process


def below(root: Path) -> list[tuple[str, ...]]:
    """Command lines of everything that the daemons of a root started."""
    return [words for _, words in processes() if any(f"{root}/" in word for word in words)]


@pytest.fixture
def root(short_dir: Path) -> Iterator[Path]:
    yield short_dir
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.split()[4].startswith(f"{short_dir}/"):
            subprocess.run(["umount", "-l", line.split()[4]], check=False)
    assert below(short_dir) == []


def docker(daemon: ManagedDaemon) -> Docker:
    return Docker(f"unix://{daemon.layout.repo(GUID).daemon_socket}", newest())


def with_image(daemon: ManagedDaemon) -> Docker:
    cli = docker(daemon)
    cli.ok("import", str(newest().image_tar), IMAGE)
    return cli


def test_a_daemon_starts_with_what_it_was_granted_and_nothing_else(root: Path, each_engine: Engine) -> None:
    daemon = managed(root, each_engine)
    process = bring_up(daemon)
    try:
        paths = daemon.layout.repo(GUID)
        info = Daemon(paths.daemon_socket).info()
        assert info.cdi_spec_dirs == (str(paths.cdi_spec_dir),)
        assert not info.devices
        assert paths.daemon_socket.stat().st_mode & 0o777 == 0o600
        assert paths.private.stat().st_mode & 0o777 == 0o700
        assert daemon.exec_root.parent.stat().st_mode & 0o777 == 0o700
        environ = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        assert f"PATH={paths.private / 'bin'}".encode() in environ
        assert b"HTTPS_PROXY=http://proxy.invalid" in environ
        assert not [entry for entry in environ if entry.startswith((b"DOCKER_", b"LD_", b"NVIDIA_"))]
    finally:
        daemon.stop(process)


def test_a_granted_device_reaches_a_container(root: Path, each_engine: Engine) -> None:
    daemon = managed(root, each_engine)
    process = bring_up(daemon)
    try:
        cli = with_image(daemon)
        refused = cli.run("run", "--rm", "--device", DEVICE, IMAGE, "true")
        assert refused.returncode != 0
        (daemon.layout.repo(GUID).cdi_spec_dir / ".x").write_text(json.dumps(SPEC))
        (daemon.layout.repo(GUID).cdi_spec_dir / ".x").rename(
            daemon.layout.repo(GUID).cdi_spec_dir / "x.json"
        )
        time.sleep(0.2)
        assert "1,   5" in cli.ok("run", "--rm", "--device", DEVICE, IMAGE, "ls", "-l", "/dev/nvidia0")
        cli.ok(
            "run",
            "--network",
            "none",
            "-v",
            "kept:/v",
            IMAGE,
            "dd",
            "if=/dev/zero",
            "of=/v/a",
            "bs=9000",
            "count=1",
        )
        contents = Daemon(daemon.layout.repo(GUID).daemon_socket).contents()
        assert (contents.containers, contents.images, contents.volumes) == (1, 1, 1)
        assert contents.size_bytes is not None
        assert contents.size_bytes >= 9000
    finally:
        daemon.stop(process)


def test_users_networks_work_without_a_bridge(root: Path, engine28: Engine) -> None:
    daemon = managed(root, engine28)
    process = bring_up(daemon)
    try:
        cli = with_image(daemon)
        cli.ok("network", "create", "own")
        cli.ok(
            "run",
            "-d",
            "--name",
            "web",
            "--network",
            "own",
            IMAGE,
            "sh",
            "-c",
            "echo hi >/i; exec httpd -f -p 80 -h /",
        )
        assert cli.ok("run", "--rm", "--network", "own", IMAGE, "wget", "-qO-", "http://web/i") == "hi\n"
    finally:
        daemon.stop(process)
    pool = kept_pool(daemon.layout, GUID)
    assert pool is not None
    listed = subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True, check=True).stdout
    assert not [address for _, address in addresses(listed) if address in pool]


def test_a_daemon_that_runs_already_is_adopted_with_its_containers(root: Path, engine28: Engine) -> None:
    daemon = managed(root, engine28)
    first = bring_up(daemon)
    cli = with_image(daemon)
    cli.ok(
        "run", "-d", "--name", "kept", "--network", "none", "--stop-signal", "KILL", IMAGE, "sleep", "1000"
    )
    assert daemon.running
    second = daemon.start()
    try:
        assert second.pid == first.pid
        assert daemon.ready(second)
        assert cli.ok("ps", "--format", "{{.Names}}") == "kept\n"
    finally:
        daemon.stop(second)
    assert first.wait(0)
    first.close()
    assert not daemon.running


def test_a_daemon_with_another_configuration_is_replaced(root: Path, engine28: Engine) -> None:
    first = bring_up(managed(root, engine28))
    changed = managed(
        root, engine28, settings=EngineSettings(dir=str(engine28.bin_dir), storage_driver="vfs")
    )
    second = bring_up(changed)
    try:
        assert second.pid != first.pid
        assert first.wait(0)
        assert docker(changed).ok("info", "--format", "{{.Driver}}") == "vfs\n"
    finally:
        first.close()
        changed.stop(second)


def test_what_a_killed_daemon_left_is_cleaned_up(root: Path, each_engine: Engine) -> None:
    daemon = managed(root, each_engine)
    process = bring_up(daemon)
    cli = with_image(daemon)
    cli.ok(
        "run", "-d", "--name", "left", "--network", "none", "--stop-signal", "KILL", IMAGE, "sleep", "1000"
    )
    process.send(signal.SIGKILL)
    assert process.wait(10)
    process.close()
    assert [words for words in below(root) if "containerd-shim" in words[0]]
    daemon.stop()
    assert below(root) == []
    again = bring_up(daemon)
    try:
        assert cli.ok("ps", "-a", "--format", "{{.Names}} {{.State}}") == "left exited\n"
    finally:
        daemon.stop(again)


def test_removing_leaves_nothing(root: Path, engine28: Engine) -> None:
    daemon = managed(root, engine28)
    process = bring_up(daemon)
    with_image(daemon).ok("run", "-d", *SLEEPING)
    process.send(signal.SIGKILL)  # so that mounts are left behind
    process.wait(10)
    process.close()
    daemon.remove()
    paths = daemon.layout.repo(GUID)
    assert not paths.directory.exists()
    assert not paths.state.exists()
    assert not daemon.exec_root.exists()
    assert not daemon.log.exists()
    assert str(root) not in Path("/proc/self/mountinfo").read_text()
    daemon.remove()


def test_a_pid_file_that_names_somebody_else_is_not_believed(root: Path, engine28: Engine) -> None:
    daemon = managed(root, engine28)
    private = daemon.layout.repo(GUID).private
    private.mkdir(parents=True)
    bystander = Process.spawn(("sleep", "1000"), env=os.environ, log=root / "log", cwd=root)
    try:
        (private / "dockerd.pid").write_text(f"{bystander.pid}\n")
        assert not daemon.running
        daemon.stop()
        assert bystander.alive
        assert not (private / "dockerd.pid").exists()
    finally:
        bystander.send(signal.SIGKILL)
        bystander.wait(10)
        bystander.close()


def test_a_configuration_that_dockerd_refuses_is_told_before_it_starts(
    root: Path, engine28: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = managed(root, engine28)
    monkeypatch.setattr("machine.daemon.daemon_json", lambda plan: b'{"no-such-option": true}')
    with pytest.raises(RefusedError):
        daemon.start()


def test_a_daemon_that_ends_at_once_tells_its_last_words(root: Path, engine28: Engine) -> None:
    settings = EngineSettings(dir=str(engine28.bin_dir), storage_driver="no-such-driver")
    daemon = managed(root, engine28, settings=settings)
    with pytest.raises(UnreachableError) as caught:
        bring_up(daemon)
    assert "no-such-driver" in caught.value.message
    daemon.stop()


def test_a_runtime_that_is_not_installed_is_told(root: Path, engine28: Engine) -> None:
    with pytest.raises(NotFoundError):
        managed(root, engine28, runtimes=("no-such-runtime",)).start()


def test_runtimes_of_the_policy_are_configured(root: Path, engine28: Engine) -> None:
    daemon = managed(root, engine28, runtimes=("runsc",))
    process = bring_up(daemon)
    try:
        assert "runsc" in json.loads(docker(daemon).ok("info", "--format", "{{json .Runtimes}}"))
    finally:
        daemon.stop(process)


def test_a_root_that_is_too_deep_is_refused(tmp_path: Path, engine28: Engine) -> None:
    daemon = managed(tmp_path / ("x" * 60), engine28)
    with pytest.raises(RefusedError) as caught:
        daemon.start()
    assert "--root" in caught.value.hint


def test_without_a_bridge_where_one_is_demanded(
    root: Path, engine28: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EngineSettings(dir=str(engine28.bin_dir), network=NetworkMode.BRIDGE)
    monkeypatch.setattr("machine.network.usable", lambda tools: "no iptables")
    with pytest.raises(RefusedError):
        managed(root, engine28, settings=settings).start()


def test_no_engine(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("machine.engine.SYSTEM_PATH", ())
    settings = EngineSettings(dir=str(root))
    daemon = ManagedDaemon(
        layout=Layout(root), guid=GUID, name="a", settings=settings, environ={"RDC_CACHE": str(root)}
    )
    with pytest.raises(RdcError):
        daemon.start()
    daemon.stop()
    daemon.remove()
