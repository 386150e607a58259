"""What setup prints; `renet setup` and `rdc machine setup` share it."""

import json
from pathlib import Path

import pytest

from cli.app import run
from cli.renet.main import renet
from tests.machine.test_provision import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    made.one_card()
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RDC_HOST", str(made.host.root))
    monkeypatch.setenv("RDC_ROOT", str(made.layout.root))
    return made


def test_files_go_to_stdout(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(renet, "renet", ["setup"]) == 0
    out, err = capsys.readouterr()
    assert "nvidia.yaml" in out
    assert "written" in out
    assert err == ""


def test_what_is_wrong_goes_to_stderr_and_into_json(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine.tools / "nvidia-ctk").unlink()
    assert run(renet, "renet", ["setup"]) == 1
    assert "error: NVIDIA cards are there and nvidia-ctk is not" in capsys.readouterr().err
    assert run(renet, "renet", ["setup", "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["fatal"] for each in document["problems"]] == [True]
    assert [each["action"] for each in document["files"]] == ["unchanged"]
