import subprocess
import sys
from pathlib import Path

import pytest

RENET = Path(sys.executable).parent / "renet"


@pytest.mark.parametrize(
    "words", [("--help",), ("up", "--help"), ("gate", "serve", "-h"), ("cdi", "list", "--help")]
)
def test_help(words: tuple[str, ...]) -> None:
    done = subprocess.run([RENET, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: renet")


def test_no_command() -> None:
    done = subprocess.run([RENET], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "renet up" in done.stderr
