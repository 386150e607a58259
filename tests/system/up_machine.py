"""A private machine root with `renet up` and managed daemons, driven through the installed commands."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from machine.process import processes
from tests.engine import Docker, Engine, newest

BIN = Path(sys.executable).parent
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/zero"}]}}
    ],
}


class UpMachine:
    """One root with `renet up`, and `rdc` on it."""

    def __init__(self, root: Path, engine: Engine) -> None:
        self.root = root
        self.environ = {**os.environ, "RDC_ROOT": str(root), "RDC_ENGINE_DIR": str(engine.bin_dir)}
        self.log = root / "up.log"
        self.up: subprocess.Popen[bytes] | None = None
        (root / "etc/cdi").mkdir(parents=True)
        (root / "etc/cdi/nvidia.json").write_text(json.dumps(SPEC))

    def start(self) -> "subprocess.Popen[bytes]":
        with self.log.open("wb") as log:
            self.up = subprocess.Popen([BIN / "renet", "up"], env=self.environ, stdout=log, stderr=log)
        self.until(lambda: "renet up: ready" in self.log.read_text())
        return self.up

    def until(self, condition: Callable[[], bool], timeout_s: float = 40) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.up is None or self.up.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def stop(self) -> int:
        assert self.up is not None
        self.up.terminate()
        code = self.up.wait(40)
        self.up = None
        return code

    def rdc(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [BIN / "rdc", *words], env=self.environ, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def create(self, name: str, *options: str) -> dict[str, str]:
        done = self.rdc("repo", "create", name, *options, "-o", "json")
        assert done.returncode == 0, done.stderr
        made: dict[str, str] = json.loads(done.stdout)
        return made

    def docker(self, repo: dict[str, str]) -> Docker:
        return Docker(f"unix://{repo['socket']}", newest())

    def daemons(self) -> list[int]:
        """Process ids of this root's dockerd."""
        return [
            pid
            for pid, words in processes()
            if words[1:2] == ("--config-file",) and words[2].startswith(f"{self.root}/")
        ]

    def close(self) -> None:
        """Stop it, and delete every repo with all that its daemon left."""
        if self.up is not None:
            self.stop()
        for name in [row["name"] for row in json.loads(self.rdc("repo", "list", "-o", "json").stdout)]:
            self.rdc("repo", "delete", name, "--yes")
        assert self.daemons() == []
