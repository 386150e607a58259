"""The benchmark runs end to end; what it measures is not judged here."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.engine import REPOSITORY

RUN = (REPOSITORY / "bench" / "run", "--no-haproxy", "--rounds", "1", "--seconds", "0.01")


@pytest.fixture(autouse=True)
def compiler() -> None:
    if shutil.which("cc") is None:
        missing("cc", "the load generator is written in C")


def test_gate_and_bare_socket_are_compared(tmp_path: Path) -> None:
    medians = tmp_path / "medians.json"
    done = subprocess.run(
        [*RUN, "--only", "1 client", "--json", medians],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(medians.read_text())
    assert any(name.startswith("create") for name in results)
    for result in results.values():
        assert set(result) == {"direct", "gate"}
        assert all(target["per_second"] > 0 for target in result.values())
    assert done.stdout.count("\n| ") == len(results) + 1


def test_a_target_that_refuses_stops_the_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RUN, "--gate-socket", tmp_path / "none.sock"],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode != 0
