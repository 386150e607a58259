from pathlib import Path

import pytest

from tests.cli.rdc.runner import Rdc


@pytest.fixture
def rdc(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> Rdc:
    return Rdc(short_dir, capsys)
