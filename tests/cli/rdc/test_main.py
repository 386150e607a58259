import subprocess
import sys
from pathlib import Path

import pytest

RDC = Path(sys.executable).parent / "rdc"


def said(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RDC, *words], capture_output=True, text=True, check=False)


def test_help_says_what_it_is_for_and_version_which() -> None:
    done = said("--help")
    assert done.returncode == 0
    assert "rdc repo gpu grant" in done.stdout
    assert "Exit codes" in done.stdout
    assert said("--version").stdout.split()[0] == "rdc"


@pytest.mark.parametrize(
    "words", [(), ("repo",), ("repo", "gpu"), ("nonsense",), ("repo", "nonsense"), ("--nonsense",)]
)
def test_words_that_are_no_command_end_with_2_and_help_on_stderr(words: tuple[str, ...]) -> None:
    done = said(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "help" in done.stderr


HEAVY = ("aiohttp", "uvloop", "asyncio", "http.client", "prometheus_client", "gate.server")


@pytest.mark.parametrize("module", ["cli.rdc.main", "cli.rdc.repo", "cli.rdc.gpu", "cli.rdc.audit"])
def test_a_command_loads_nothing_that_only_the_gate_needs(module: str) -> None:
    script = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
