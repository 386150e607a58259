"""Real Docker engines for tests: where they are, private daemons, the CLI and raw requests against them.

`scripts/install-engine` brings the engines and writes what `locate` reads. A daemon runs in namespaces of
its own (mounts, network, processes): whatever happens to the test, its processes, mounts and bridges end with
it, the host's network is left alone, and any number of daemons run side by side.
"""

import atexit
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.example_cdi import EXAMPLE_UUID, example_spec, write_spec

__all__ = [
    "EXAMPLE_UUID",
    "IMAGE",
    "REPOSITORY",
    "SLOTS",
    "Answer",
    "Daemon",
    "Docker",
    "Engine",
    "MissingError",
    "example_spec",
    "locate",
    "newest",
    "remove_leftovers",
    "request",
    "write_spec",
]

REPOSITORY = Path(__file__).resolve().parents[1]
SLOTS = ("28", "26")
IMAGE = "bb:1"
"""The busybox image every private daemon has."""
UP_WITHIN_S = 30.0
DOWN_WITHIN_S = 10.0


class MissingError(Exception):
    """This machine cannot run the engine; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An unpacked or installed engine, as engine.json tells."""

    slot: str
    version: str
    bin_dir: Path
    plugin_dir: Path
    image_tar: Path
    binaries: Mapping[str, Path]

    @property
    def major(self) -> int:
        """28 for 28.5.2."""
        return int(self.version.split(".", 1)[0])


def locate(slot: str) -> Engine:
    """The engine of a slot ("28", "26").

    Raises:
        MissingError: it is not installed, or this user cannot run a daemon.
    """
    cache = Path(os.environ.get("RDC_CACHE") or REPOSITORY / ".cache")
    path = cache / "engine" / slot / "engine.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingError(f"no engine {slot}: run scripts/install-engine {slot}") from None
    if os.geteuid() != 0:
        raise MissingError("a Docker daemon needs root")
    probe = subprocess.run(["unshare", "-m", "-n", "-p", "-f", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        raise MissingError("namespaces cannot be made here")
    return Engine(
        slot=slot,
        version=found["version"],
        bin_dir=Path(found["bin_dir"]),
        plugin_dir=Path(found["plugin_dir"]),
        image_tar=Path(found["image_tar"]),
        binaries={name: Path(place) for name, place in found["binaries"].items()},
    )


def newest() -> Engine:
    """The engine whose CLI and plugins drive all daemons: Compose knows CDI devices only from 2.28 on."""
    return locate(SLOTS[0])


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Docker's error text."""
        return str(self.json()["message"])


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("docker", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def request(
    path: Path,
    method: str,
    target: str,
    body: bytes | Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float = 30.0,
) -> Answer:
    """One HTTP request over a unix socket; a mapping is sent as JSON, bytes as they are."""
    sent = dict(headers or {})
    if body is not None:
        sent.setdefault("Content-Type", "application/json")
    payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection = _UnixConnection(path, timeout_s)
    try:
        connection.request(method, target, body=payload, headers=sent)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


@dataclass(slots=True)
class Docker:
    """The real Docker CLI against one socket, with Compose and buildx, and a configuration of its own."""

    host: str
    engine: Engine
    environment: Mapping[str, str] = field(default_factory=dict)
    _config: Path | None = None

    @property
    def config(self) -> Path:
        """The DOCKER_CONFIG folder, private to this object, as buildx keeps state there."""
        if self._config is None:
            self._config = Path(tempfile.mkdtemp(prefix=f"rdc-{os.getpid()}-cli-", dir="/tmp"))
            atexit.register(shutil.rmtree, self._config, ignore_errors=True)
            plugins = {"cliPluginsExtraDirs": [str(self.engine.plugin_dir)]}
            (self._config / "config.json").write_text(json.dumps(plugins), encoding="utf-8")
        return self._config

    def command(self, *arguments: str) -> tuple[str, ...]:
        """The argument list, for callers that start the process themselves."""
        return (str(self.engine.binaries["docker"]), *arguments)

    def env(self) -> dict[str, str]:
        """The environment the CLI runs in."""
        return {
            "PATH": f"{self.engine.bin_dir}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.config),
            "DOCKER_HOST": self.host,
            "DOCKER_CONFIG": str(self.config),
            "DOCKER_CLI_HINTS": "false",
            "BUILDKIT_PROGRESS": "plain",
            "COMPOSE_PROGRESS": "plain",
            "LC_ALL": "C.UTF-8",
            **self.environment,
        }

    def run(
        self,
        *arguments: str,
        stdin: str | None = None,
        cwd: Path | None = None,
        timeout_s: float = 50.0,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; its exit status is the caller's to judge."""
        return subprocess.run(
            self.command(*arguments),
            input=stdin if stdin is not None else "",
            cwd=cwd,
            env={**self.env(), **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def ok(self, *arguments: str, **options: Any) -> str:
        """Run a command that has to succeed; returns its output."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, (
            f"docker {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def popen(self, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
        """Start a command; pipes and their end are the caller's."""
        return subprocess.Popen(self.command(*arguments), env=self.env(), **options)


class Daemon:
    """A private dockerd with CDI, below a short folder of its own.

    It must be started from a thread that outlives it: the kernel kills it when that thread ends, which is
    what leaves nothing behind when a test run is killed.
    """

    def __init__(
        self, engine: Engine, *, config: Mapping[str, object] | None = None, options: Sequence[str] = ()
    ):
        """`config` is merged over daemon.json; `options` are further dockerd arguments."""
        self.engine = engine
        self.directory = Path(tempfile.mkdtemp(prefix=f"rdc-{os.getpid()}-", dir="/tmp"))
        self.cdi_dir = self.directory / "cdi"
        self.cdi_dir.mkdir()
        self.socket = self.directory / "docker.sock"
        self.host = f"unix://{self.socket}"
        self.docker = Docker(self.host, newest())
        self._config = {
            "features": {"cdi": True},
            "cdi-spec-dirs": [str(self.cdi_dir)],
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "cgroup-parent": f"/{self.directory.name}",
            **(config or {}),
        }
        self._options = tuple(options)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, image: bool = True) -> None:
        """Start, wait until it answers, and import the image unless it has it.

        Raises:
            MissingError: it does not come up; its log is in the text.
        """
        config = self.directory / "daemon.json"
        config.write_text(json.dumps(self._config), encoding="utf-8")
        # Left by `kill`; the process numbers in them belong to a namespace that is gone.
        for leftover in ("docker.sock", "docker.pid", "exec/containerd/containerd.pid"):
            (self.directory / leftover).unlink(missing_ok=True)
        dockerd = [
            *("dockerd", "--config-file", str(config), "--host", self.host),
            *("--data-root", str(self.directory / "data"), "--exec-root", str(self.directory / "exec")),
            *("--pidfile", str(self.directory / "docker.pid")),
            *("--iptables=false", "--ip6tables=false", "--ip-forward=false"),
            *self._options,
        ]
        isolated = [
            *("setpriv", "--pdeathsig", "KILL"),
            *("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"),
            *("docker-init", "--", "sh", "-c", 'busybox ifconfig lo up && exec "$@"', "sh"),
        ]
        path = f"{self.engine.bin_dir}:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*isolated, *dockerd],
                env={"PATH": path, "HOME": str(self.directory), "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_up()
        if image and self.request("GET", f"/images/{IMAGE}/json").status != 200:
            self.docker.ok("import", str(self.engine.image_tar), IMAGE)

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + UP_WITHIN_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            with contextlib.suppress(OSError, http.client.HTTPException):
                if request(self.socket, "GET", "/_ping").status == 200:
                    return
            time.sleep(0.02)
        log = self.log_path.read_text(encoding="utf-8", errors="replace")[-2000:]
        self.close()
        raise MissingError(f"dockerd {self.engine.version} does not come up:\n{log}")

    @property
    def alive(self) -> bool:
        """Whether it was started and still runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        """Everything dockerd wrote, over restarts."""
        return self.directory / "dockerd.log"

    def request(self, method: str, target: str, *arguments: Any, **options: Any) -> Answer:
        """`request` to this daemon, past any gate."""
        return request(self.socket, method, target, *arguments, **options)

    def clean(self) -> None:
        """Remove containers, networks and volumes, so that a shared daemon meets the next test empty."""
        for container in self.request("GET", "/containers/json?all=1").json():
            self.request("DELETE", f"/containers/{container['Id']}?force=1&v=1")
        self.request("POST", "/networks/prune")
        for volume in self.request("GET", "/volumes").json()["Volumes"] or ():
            self.request("DELETE", f"/volumes/{volume['Name']}?force=1")
        for path in self.cdi_dir.iterdir():
            path.unlink()

    def stop(self, *, kill_containers: bool = True) -> None:
        """End the daemon as an operator would; with `kill_containers` it need not wait for theirs to end."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            if kill_containers and process.poll() is None:
                for container in self.request("GET", "/containers/json", timeout_s=5).json():
                    self.request("POST", f"/containers/{container['Id']}/kill", timeout_s=5)
        _signal_init(process, signal.SIGTERM)
        try:
            process.wait(DOWN_WITHIN_S)
        except subprocess.TimeoutExpired:
            _signal_init(process, signal.SIGKILL)
            process.wait()

    def kill(self) -> None:
        """End the daemon and all it started at once, as a crash of the machine would."""
        process, self._process = self._process, None
        if process is not None:
            _signal_init(process, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """Stop and leave nothing behind."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        remove_cgroups(self.directory.name)


def _signal_init(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Signal the first process of the namespace that `process` (unshare) waits for.

    It passes SIGTERM on to dockerd. SIGKILL ends all other processes of the namespace with it: unshare
    returns only when none is left.
    """
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == process.pid:
                os.kill(int(path.parent.name), number)


def remove_cgroups(name: str) -> None:
    """Remove the control groups that containers ended by force leave empty, in all hierarchies."""
    root = Path("/sys/fs/cgroup")
    for top in (root / name, *root.glob(f"*/{name}")):
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def remove_leftovers() -> None:
    """Remove the folders of test runs that were killed before they could."""
    for path in Path("/tmp").glob("rdc-[0-9]*-*"):
        if not Path("/proc", path.name.split("-")[1]).exists():
            shutil.rmtree(path, ignore_errors=True)
            remove_cgroups(path.name)
