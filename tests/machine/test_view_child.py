"""The program that makes a view tells why it cannot. What it makes is tested where it is told (test_view)."""

import subprocess
import sys
from pathlib import Path

import pytest

from machine import view_child
from tests.engine import Engine

TOLD = '{"guards": [], "own": [], "hidden": [], "enter": null, "command": ["/bin/echo", "started"]}'


def run(told: str, *before: str) -> "subprocess.CompletedProcess[str]":
    command = (*before, sys.executable, "-I", "-S", view_child.__file__, told)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_becomes_the_command(engine28: Engine) -> None:
    assert run(TOLD).stdout == "started\n"


@pytest.mark.parametrize(
    ("told", "named"),
    [
        (TOLD.replace('"own": []', '"own": ["/no/such/place"]'), "/no/such/place: No such file"),
        (TOLD.replace('"guards": []', '"guards": ["/no/such/place"]'), "/no/such/place: No such file"),
        (TOLD.replace("null", "4194305"), "/proc/4194305/ns/mnt: No such file"),
        (TOLD.replace("/bin/echo", "/no/program"), "No such file"),
    ],
)
def test_what_cannot_be_made_starts_nothing(engine28: Engine, told: str, named: str) -> None:
    done = run(told)
    assert done.returncode == 1
    assert done.stdout == ""
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_right_to_it_nothing_starts(engine28: Engine) -> None:
    done = run(TOLD, "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    assert done.returncode == 1
    assert "the mount namespace: Operation not permitted" in done.stderr


def test_an_old_kernel_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    source = Path(view_child.__file__).read_text().replace("428, 429, 437, 442", "9428, 9429, 9437, 9442")
    script.write_text(source)
    told = TOLD.replace('"own": []', f'"own": ["{tmp_path}"]')
    done = subprocess.run([sys.executable, script, told], capture_output=True, text=True, check=False)
    assert "Linux 5.12 or newer is needed" in done.stderr
