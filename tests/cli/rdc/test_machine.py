import csv
import io
import json

import pytest
import yaml

from cli.rdc.machine import LOCAL
from tests.cli.rdc.runner import Rdc
from tests.machine.test_provision import UUID, Machine


@pytest.fixture
def machine(rdc: Rdc, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with one card whose environment is ours, and whose root is `rdc`'s."""
    made = Machine(tmp_path_factory.mktemp("machine"))
    made.one_card()
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RDC_HOST", str(made.host.root))
    return made


def test_setup_then_list(rdc: Rdc, machine: Machine) -> None:
    done = rdc.json("machine", "setup", LOCAL)
    assert done.code == 0, done.err
    assert [row["action"] for row in done.record["files"]] == ["written", "written"]  # type: ignore[attr-defined]
    stored = (rdc.root / "etc/rediacc/gpu/inventory.json").read_text()
    assert rdc.json("machine", "gpu", "list", LOCAL).out == stored
    assert yaml.safe_load(rdc("machine", "gpu", "list", LOCAL, "-o", "yaml").out) == json.loads(stored)
    (row,) = csv.DictReader(io.StringIO(rdc("machine", "gpu", "list", LOCAL, "-o", "csv").out))
    assert (row["name"], row["uuid"], row["memory_mb"]) == ("NVIDIA H200", UUID, "143771")


def test_the_table_shows_cards_names_and_grants(rdc: Rdc, machine: Machine) -> None:
    assert rdc("machine", "setup", LOCAL).code == 0
    done = rdc("machine", "gpu", "list", LOCAL)
    assert done.code == 0
    for words in (
        "native",
        "less than a minute old",
        "570.133.20",
        "NVIDIA H200",
        "nvidia.com/gpu=0",
        "/dev/nvidia0",
    ):
        assert words in done.out


def test_before_setup_and_on_other_machines(rdc: Rdc) -> None:
    done = rdc.json("machine", "gpu", "list", LOCAL)
    assert done.code == 5
    assert "renet setup" in done.error["hint"]
    for words in (("gpu", "list"), ("setup",)):
        assert rdc.json("machine", *words, "elsewhere").code == 5


def test_doctor_tells_what_setup_found(rdc: Rdc, machine: Machine) -> None:
    rdc("machine", "setup", LOCAL)
    (machine.host.root / "dev/nvidia-uvm").unlink()
    inventory = rdc.root / "etc/rediacc/gpu/inventory.json"
    fault = '"fault": {"code": "gpu-is-lost", "message": "lost"}'
    inventory.write_text(inventory.read_text().replace('"fault": null', fault, 1))
    checks = {str(row["check"]) for row in rdc.json("doctor").rows}
    assert {"spec-node-missing", "gpu-fault"} <= checks
    inventory.write_text("{")
    assert "inventory" in {str(row["check"]) for row in rdc.json("doctor").rows}
