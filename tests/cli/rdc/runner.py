"""Runs `rdc` in this process on a root of its own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.app import run
from cli.rdc.main import rdc

SPEC = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  deviceNodes: [{path: /dev/nvidiactl, hostPath: /dev/null}]
devices:
  - {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/zero}]}}
  - {name: "1", containerEdits: {deviceNodes: [{path: /dev/nvidia1, hostPath: /dev/full}]}}
  - name: all
    containerEdits:
      deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/zero}, {path: /dev/nvidia1, hostPath: /dev/full}]
"""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self.out)
        return found

    @property
    def record(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.out)
        return found

    @property
    def error(self) -> Mapping[str, str]:
        """The JSON error, which is the last line of stderr."""
        found: dict[str, str] = json.loads(self.err.splitlines()[-1])
        assert set(found) == {"code", "message", "hint"}
        return found


class Rdc:
    """`rdc` on one root."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.spec_dir = root / "etc/cdi"
        self.spec_dir.mkdir(parents=True)
        self._capsys = capsys

    def __call__(self, *words: str) -> Done:
        self._capsys.readouterr()
        code = run(rdc, "rdc", ["--root", str(self.root), *words])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(code=code, out=captured.out, err=captured.err)

    def json(self, *words: str) -> Done:
        return self(*words, "-o", "json")

    def write_spec(self, text: str = SPEC) -> None:
        (self.spec_dir / "nvidia.yaml").write_text(text)

    def create(self, name: str, *options: str) -> dict[str, str]:
        """Make a repo before a socket on which nobody listens, unless the options say otherwise."""
        if "--upstream" not in options:
            options = (*options, "--upstream", f"unix://{self.root}/{name}.sock")
        done = self.json("repo", "create", name, *options)
        assert done.code == 0, done.err
        found: dict[str, str] = json.loads(done.out)
        return found

    def devices(self, *words: str) -> list[str]:
        return [str(row["device"]) for row in self.json("repo", "gpu", "list", *words).rows]
