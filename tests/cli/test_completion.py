import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", ["rdc", "renet"])
def test_completion_scripts(program: str, shell: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / program, "completion", shell],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"_{program.upper()}_COMPLETE" in done.stdout


def test_a_shell_that_is_not_known() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "rdc", "completion", "sh"], capture_output=True, check=False
    )
    assert done.returncode == 2
