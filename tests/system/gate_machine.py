"""A private machine root with a gate running on it, driven through the installed commands only."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

BIN = Path(sys.executable).parent
READY_S = 20.0


class GateMachine:
    """One root, one `renet gate serve`; `rdc` runs on the same root.

    The root is short because unix socket paths end at 107 bytes.
    """

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="g", dir="/tmp"))
        self.spec_dir = self.root / "etc/cdi"
        self.spec_dir.mkdir(parents=True)
        self.log = self.root / "gate.log"
        self._gate: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._gate is not None
        return self._gate.pid

    def environment(self) -> dict[str, str]:
        return {**os.environ, "RDC_ROOT": str(self.root), "NO_COLOR": "1"}

    def rdc(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._command("rdc", args, check=check)

    def renet(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._command("renet", args, check=check)

    def _command(self, program: str, args: Sequence[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [BIN / program, *args], env=self.environment(), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=60, check=False,
        )  # fmt: skip
        said = f"{program} {args}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert not check or done.returncode == 0, said
        return done

    def create_repo(self, name: str, upstream: Path, *options: str) -> dict[str, str]:
        """Make the repo before `upstream` listens or after; returns what `rdc repo show -o json` says."""
        self.rdc("repo", "create", name, "--upstream", f"unix://{upstream}", *options)
        return self.show(name)

    def show(self, name: str) -> dict[str, str]:
        shown: dict[str, str] = json.loads(self.rdc("repo", "show", name, "-o", "json").stdout)
        return shown

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._gate = subprocess.Popen(
                [BIN / "renet", "gate", "serve"],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + READY_S
        while not (self.root / "run/rediacc/gate.sock").exists():
            assert self._gate.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        if self._gate is None:
            return
        self._gate.send_signal(signal.SIGTERM)
        try:
            self._gate.wait(15)
        except subprocess.TimeoutExpired:
            self._gate.kill()
            self._gate.wait()
            raise
        finally:
            self._gate = None

    def kill(self) -> None:
        """End the gate as a crash would, and remove the sockets that it leaves, so that `start` waits."""
        assert self._gate is not None
        self._gate.kill()
        self._gate.wait()
        self._gate = None
        for left in (self.root / "run/rediacc").rglob("*.sock"):
            left.unlink()

    def write_spec(self, name: str, document: Mapping[str, object]) -> None:
        """Put a spec where the machine's specs lie, by rename, as nvidia-ctk's own service does."""
        temporary = self.spec_dir / f".{name}.tmp"
        temporary.write_text(json.dumps(document))
        temporary.replace(self.spec_dir / name)

    def wait_for_socket(self, path: str, *, present: bool = True) -> None:
        deadline = time.monotonic() + 10
        while Path(path).exists() is not present:
            assert time.monotonic() < deadline, f"{path} present={not present}\n{self.log.read_text()}"
            time.sleep(0.02)

    def memory_kb(self, field: str = "VmRSS") -> int:
        """A memory figure of the gate from /proc, in kB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
        raise AssertionError(f"no {field}")

    def close(self) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)


@contextlib.contextmanager
def gate_machine() -> Iterator[GateMachine]:
    machine = GateMachine()
    try:
        yield machine
    finally:
        machine.close()


def example_spec(*devices: str, kind: str = "nvidia.com/gpu") -> dict[str, object]:
    """Stand-in devices: each opens one harmless host node under an NVIDIA name, `all` opens every one."""
    hosts = dict(zip(devices, ("/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"), strict=False))
    nodes = {
        name: {"path": f"/dev/nvidia{index}", "hostPath": host, "type": "c", "permissions": "rw"}
        for index, (name, host) in enumerate(hosts.items())
    }
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            *({"name": name, "containerEdits": {"deviceNodes": [node]}} for name, node in nodes.items()),
            {"name": "all", "containerEdits": {"deviceNodes": list(nodes.values())}},
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl", "hostPath": "/dev/null", "type": "c"}],
        },
    }
