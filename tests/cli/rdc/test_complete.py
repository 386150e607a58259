import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.rdc.runner import Rdc


def completions(root: Path, *words: str) -> set[str]:
    """What bash would be offered for the last of these words."""
    environ = {
        "RDC_ROOT": str(root),
        "_RDC_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("rdc", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [Path(sys.executable).parent / "rdc"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return {row.partition(",")[2] for row in done.stdout.splitlines() if row}


@pytest.fixture(autouse=True)
def _machine(rdc: Rdc) -> None:
    rdc.write_spec()
    for name in ("gpu-a", "gpu-b", "other"):
        rdc.create(name)


def test_repos(rdc: Rdc) -> None:
    for words in (("repo", "show"), ("repo", "delete"), ("repo", "gpu", "list"), ("repo", "gpu", "revoke")):
        assert completions(rdc.root, *words, "gpu") == {"gpu-a", "gpu-b"}
    assert completions(rdc.root, "repo", "show", "x") == set()


def test_devices(rdc: Rdc) -> None:
    found = completions(rdc.root, "repo", "gpu", "grant", "gpu-a", "--device", "nvidia")
    assert found == {"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all"}


def test_commands(rdc: Rdc) -> None:
    assert completions(rdc.root, "repo", "gpu", "") >= {"grant", "revoke", "list"}
    assert "repo" in completions(rdc.root, "re")


def test_what_cannot_be_read_offers_nothing(rdc: Rdc) -> None:
    (rdc.root / "etc/rediacc/gate.yaml").write_text("[")
    assert completions(rdc.root, "repo", "gpu", "grant", "gpu-a", "--device", "") == set()
