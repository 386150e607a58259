from pathlib import Path

import pytest

from cli.app import run
from cli.renet.main import renet


def test_a_broken_configuration_stops_setup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "etc/rediacc").mkdir(parents=True)
    (tmp_path / "etc/rediacc/gate.yaml").write_text("nonsense: 1\n")
    assert run(renet, "renet", ["setup", "--root", str(tmp_path)]) == 1
    assert "gate.yaml" in capsys.readouterr().err
    assert not (tmp_path / "etc/cdi").exists()
