"""scripts/demo checks itself; here only that it can, and that nothing is left when it is interrupted."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from machine.process import processes
from tests.engine import REPOSITORY, Engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def start() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [REPOSITORY / "scripts/demo"],
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def root_in(output: str) -> str:
    """The private root, as the last line names it."""
    return next(word for word in output.splitlines()[-1].split() if word.startswith("/tmp/"))


def nothing_left(root: str) -> None:
    assert not Path(root).exists()
    assert [words for _, words in processes() if any(f"{root}/" in word for word in words)] == []
    assert f"{root}/" not in Path("/proc/self/mountinfo").read_text()


def test_it_shows_what_it_promises_and_leaves_nothing(engine28: Engine) -> None:
    with start() as demo:
        output, _ = demo.communicate(timeout=200)
    assert demo.returncode == 0, output
    for shown in ("[grant-missing]", "[gpus-flag]", "overlaps-exclusive", "still runs with", "compose"):
        assert shown in output
    nothing_left(root_in(output))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_cleans_up(engine28: Engine, number: signal.Signals, code: int) -> None:
    with start() as demo:
        assert demo.stdout is not None
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if "rdc repo create gpu-b" in line:
                break
        time.sleep(0.5)  # in the middle of it
        os.killpg(demo.pid, number)
        output = "".join(lines) + demo.communicate(timeout=100)[0]
    assert demo.returncode == code, output
    nothing_left(root_in(output))
