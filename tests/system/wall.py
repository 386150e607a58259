"""The wall: what a client tries in order to open a node that is not granted, and how we would know if it did.

The hardware is a real character device that no container may open by default. It stands behind the CDI
devices 1 (never granted) and 2 (granted to a running holder, then revoked). Every container that an attempt
brings to life runs a probe, which looks for the node under any name, makes it where it can, and opens it.
"""

import contextlib
import io
import json
import os
import socket
import stat
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.engine import IMAGE, Answer, Engine, request
from tests.system.conftest import REPO, Gated, start_gated

CANDIDATES = ("/dev/fuse", "/dev/kmsg", "/dev/loop-control", "/dev/hwrng")
"""Nodes of ordinary machines that Docker's default device rules leave out."""

KIND = "nvidia.com/gpu"
OPERATORS = "the-operators"
BREACH, PROBED = "BREACH", "PROBED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The node that must stay shut."""

    path: str
    major: int
    minor: int

    @classmethod
    def find(cls) -> "Hardware":
        for path in CANDIDATES:
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            except OSError:
                continue
            status = Path(path).stat()
            assert stat.S_ISCHR(status.st_mode)
            return cls(path=path, major=os.major(status.st_rdev), minor=os.minor(status.st_rdev))
        raise AssertionError(f"none of {CANDIDATES} can be opened here")

    def probe(self) -> str:
        """A shell script that says BREACH for every way in which the node opens, and PROBED at its end.

        Neither word stands in the script itself, which build logs repeat.
        """
        return (
            f"w={self.major:x}:{self.minor:x}; b=BRE; p=PRO; "
            'opens() { if (: <"$1") 2>/dev/null || (: <>"$1") 2>/dev/null; then echo ${b}ACH $1; fi; }; '
            "for f in $(find / -maxdepth 4 '(' -path /proc -o -path /sys ')' -prune -o -type c -print "
            "2>/dev/null) /proc/1/root/dev/*; do "
            '[ "$(stat -c %t:%T $f 2>/dev/null)" = $w ] && opens $f; done; '
            "for d in /tmp /dev /dev/shm $(cut -d' ' -f2 /proc/mounts); do "
            f"mknod $d/wall c {self.major} {self.minor} 2>/dev/null && opens $d/wall; "
            "rm -f $d/wall 2>/dev/null; done; "
            "for s in $(find / -maxdepth 4 '(' -path /proc -o -path /sys ')' -prune -o -name d*.sock "
            "-type s -print 2>/dev/null); do echo ${b}ACH $s; done; "
            "[ -e /dev/nvidia1 ] && echo ${b}ACH node; echo ${p}BED"
        )

    def spec(self) -> dict[str, object]:
        """0 is harmless; 1, 2 and all are the hardware."""

        def device(name: str, *nodes: tuple[str, str]) -> dict[str, object]:
            return {
                "name": name,
                "containerEdits": {"deviceNodes": [{"path": path, "hostPath": host} for path, host in nodes]},
            }

        one, two = ("/dev/nvidia1", self.path), ("/dev/nvidia2", self.path)
        zero = ("/dev/nvidia0", "/dev/zero")
        return {
            "cdiVersion": "0.5.0",
            "kind": KIND,
            "devices": [device("0", zero), device("1", one), device("2", two), device("all", zero, one)],
        }


@dataclass(slots=True, kw_only=True)
class Wall:
    """A gated daemon with things of the operator's in it, and a client that may do anything.

    `gated.socket` is where the client goes, unless it is let `past` the gate to show what there is to stop.
    """

    gated: Gated
    hardware: Hardware
    bind_root: Path
    prepared_exec: str = ""
    past: bool = False
    said: list[str] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        """Where the client goes."""
        return self.gated.daemon.socket if self.past else self.gated.socket

    # What the client does

    def ask(
        self,
        method: str,
        target: str,
        body: bytes | Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request."""
        answer = request(self.socket, method, target, body, headers)
        self.said.append(answer.body.decode(errors="replace"))
        return answer

    def body(self, host: Mapping[str, object] | None = None, **top: object) -> dict[str, object]:
        """A create body whose container probes."""
        probe = ["sh", "-c", self.hardware.probe()]
        return {"Image": IMAGE, "Cmd": probe, "HostConfig": {"NetworkMode": "none", **(host or {})}, **top}

    def create(self, host: Mapping[str, object] | None = None, **top: object) -> int:
        """Ask for a container; if there is one afterwards, `finish` starts it."""
        return self.ask("POST", "/v1.44/containers/create", self.body(host, **top)).status

    def json(self, text: str) -> int:
        """Ask with this text, in which PROBE stands for the image and the command."""
        probe = json.dumps({"Image": IMAGE, "Cmd": ["sh", "-c", self.hardware.probe()]})[1:-1]
        return self.ask("POST", "/v1.44/containers/create", text.replace("PROBE", probe).encode()).status

    def talk(self, raw: bytes, then: bytes = b"") -> bytes:
        """Raw bytes; `then` follows a switch of protocols. All that comes back."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(self.socket))
            client.sendall(raw)
            answer = client.recv(65536)
            if b" 101 " in answer[:20]:
                client.sendall(then)
            else:
                client.shutdown(socket.SHUT_WR)
            while PROBED.encode() not in answer and (part := client.recv(65536)):
                answer += part
        self.said.append(answer.decode(errors="replace"))
        return answer

    def execute(self, container: str, **options: object) -> int:
        """Create and start an exec of the probe."""
        body = {"AttachStdout": True, "Cmd": ["sh", "-c", self.hardware.probe()], **options}
        made = self.ask("POST", f"/v1.44/containers/{container}/exec", body)
        if made.status != 201:
            return made.status
        return self.ask("POST", f"/v1.44/exec/{made.json()['Id']}/start", {"Detach": False}).status

    def attach(self, container: str, *, websocket: bool = False) -> bytes:
        """Attach with the probe as input."""
        method, path, protocol = ("GET", "attach/ws", "websocket") if websocket else ("POST", "attach", "tcp")
        head = (
            f"{method} /v1.44/containers/{container}/{path}?stream=1&stdin=1&stdout=1 HTTP/1.1\r\n"
            f"Host: d\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nOrigin: http://d\r\n\r\n"
        )
        typed = self.hardware.probe().encode() + b"\n"
        frame = b"\x82\xfe" + len(typed).to_bytes(2) + bytes(4) + typed
        return self.talk(head.encode(), frame if websocket else typed)

    def node_tar(self, kind: bytes = tarfile.CHRTYPE, base: Path | None = None) -> bytes:
        """An archive that makes the node, on top of another one."""
        buffer = io.BytesIO(b"" if base is None else base.read_bytes())
        with tarfile.open(fileobj=buffer, mode="w" if base is None else "a") as archive:
            info = tarfile.TarInfo("node")
            info.type, info.mode = kind, 0o666
            info.devmajor, info.devminor = self.hardware.major, self.hardware.minor
            archive.addfile(info)
        return buffer.getvalue()

    def context(self, dockerfile: str) -> bytes:
        """A build context."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            info = tarfile.TarInfo("Dockerfile")
            info.size = len(dockerfile.encode())
            archive.addfile(info, io.BytesIO(dockerfile.encode()))
        return buffer.getvalue()

    # What came of it

    def finish(self) -> tuple[int, int]:
        """Start what was made, read what it says, and remove it.

        Returns:
            How often the node was opened, and how many containers or builds looked for it to their end.
        """
        daemon = self.gated.daemon
        for container in self._containers():
            name = container["Id"]
            if container["State"] == "created":
                self.ask("POST", f"/v1.44/containers/{name}/start")
            daemon.request("POST", f"/containers/{name}/wait?condition=not-running")
            self.said.append(
                daemon.request("GET", f"/containers/{name}/logs?stdout=1&stderr=1").body.decode(
                    errors="replace"
                )
            )
            daemon.request("DELETE", f"/containers/{name}?force=1&v=1")
        for victim in DORMANT:
            state = daemon.request("GET", f"/containers/{victim}/json").json()["State"]
            if state["StartedAt"] != "0001-01-01T00:00:00Z":
                self.said.append(f"{BREACH} {victim} was started")
        said, self.said = self.said, []
        return sum(text.count(BREACH) for text in said), sum(PROBED in text for text in said)

    def _containers(self) -> list[dict[str, str]]:
        found = self.gated.daemon.request("GET", "/containers/json?all=1").json()
        return [each for each in found if OPERATORS not in each["Labels"]]


DORMANT = (
    "dormant-privileged",
    "dormant-raw",
    "dormant-cdi",
    "dormant-bind",
    "dormant-pid",
    "dormant-joined",
)


def furnish(wall: Wall) -> None:
    """What stands in the repo's daemon before the attempts, all of it made past the gate but the holder.

    Containers that the gate would refuse, some running; a volume that is `/dev`; an image mount; a link out
    of the bind root; a holder whose grant is gone, with an exec that was made while it was live.
    """
    daemon, node = wall.gated.daemon, wall.hardware.path
    shell = {"Cmd": ["sh"], "OpenStdin": True, "AttachStdin": True}
    everything = {"CgroupPermissions": "rwm"}
    request_2 = [{"Driver": "cdi", "DeviceIDs": [f"{KIND}=2"]}]
    dormant: dict[str, dict[str, object]] = {
        "dormant-privileged": {"Privileged": True},
        "dormant-raw": {"Devices": [{**everything, "PathOnHost": node, "PathInContainer": "/n"}]},
        "dormant-cdi": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [f"{KIND}=1"]}]},
        "dormant-bind": {"Binds": ["/dev:/d"], "DeviceCgroupRules": ["c *:* rwm"]},
        "dormant-pid": {"PidMode": "host", "Privileged": True},
        "dormant-joined": {"PidMode": "container:privileged"},
    }
    running = _operators({**wall.body({"Privileged": True}), **shell})
    _made(daemon.request("POST", "/containers/create?name=privileged", running))
    daemon.request("POST", "/containers/privileged/start")
    for name, host in dormant.items():
        _made(daemon.request("POST", f"/containers/create?name={name}", _operators(wall.body(host))))
    volume = {"Name": "devices", "DriverOpts": {"type": "none", "o": "bind", "device": "/dev"}}
    _made(daemon.request("POST", "/volumes/create", volume))
    (wall.bind_root / "out").symlink_to("/dev")
    wall.gated.grant(f"{KIND}=0", f"{KIND}=2")
    holder = _operators({**wall.body({"DeviceRequests": request_2}), **shell})
    for name in ("holder", "paused"):
        _made(wall.ask("POST", f"/containers/create?name={name}", holder))
        assert wall.ask("POST", f"/containers/{name}/start").status == 204
    wall.ask("POST", "/containers/paused/pause")
    probe = {"AttachStdout": True, "Cmd": ["sh", "-c", wall.hardware.probe()]}
    wall.prepared_exec = _made(wall.ask("POST", "/containers/holder/exec", probe))
    wall.gated.machine.rdc("repo", "gpu", "revoke", REPO, "--device", f"{KIND}=2")
    wall.said.clear()


def admit_binds(gated: Gated, bind_root: Path) -> None:
    """Give the repo a bind root, and wait until the gate knows."""
    file = gated.machine.root / f"etc/rediacc/repos/{REPO}.yaml"
    changed = file.with_suffix(".tmp")
    changed.write_text(file.read_text().replace("bind_roots: []", f"bind_roots: [{bind_root}]"))
    changed.replace(file)
    body = {"Image": IMAGE, "Cmd": ["true"], "HostConfig": {"Binds": [f"{bind_root}:/w"]}}
    deadline = time.monotonic() + 10
    while (answer := request(gated.socket, "POST", "/containers/create", body)).status != 201:
        assert time.monotonic() < deadline, answer.body
        time.sleep(0.05)
    gated.daemon.request("DELETE", f"/containers/{answer.json()['Id']}")


def _operators(body: dict[str, object]) -> dict[str, object]:
    return {**body, "Labels": {OPERATORS: "1"}}


def _made(answer: Answer) -> str:
    assert answer.status == 201, answer.body
    made = answer.json()
    return str(made.get("Id") or made.get("Name"))


@contextlib.contextmanager
def furnished(engine: Engine, bind_root: Path) -> Iterator[Wall]:
    """A gate before a daemon of this engine, with everything in it."""
    with contextlib.contextmanager(start_gated)(engine) as gated:
        hardware = Hardware.find()
        gated.machine.write_spec("nvidia.json", hardware.spec())
        admit_binds(gated, bind_root)
        wall = Wall(gated=gated, hardware=hardware, bind_root=bind_root)
        furnish(wall)
        yield wall


Act = Callable[[Wall], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One way of trying. `runs`: something does run, and is there to show that it finds nothing."""

    class_: str
    name: str
    act: Act
    runs: bool = False
