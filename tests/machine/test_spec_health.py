from pathlib import Path

from machine.spec_health import spec_faults
from tests.machine.test_provision import Machine
from tests.machine.tools import SPECS


def codes(machine: Machine) -> dict[str, bool]:
    return {each.code: each.blocks for each in spec_faults(machine.layout)}


def test_faults_of_what_the_machine_reads(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.one_card()
    assert spec_faults(machine.layout) == ()
    machine.set_up()
    assert spec_faults(machine.layout) == ()
    (machine.host.root / "dev/nvidia0").unlink()
    machine.host.write("proc/driver/nvidia/version", "NVRM version: x86_64 Kernel Module  580.65.06  x\n")
    assert codes(machine) == {"spec-node-missing": True, "spec-driver-changed": True}


def test_a_leftover_is_told_and_not_judged_unless_it_is_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.one_card()
    machine.set_up()
    leftovers = machine.layout.root / "var/run/cdi"
    leftovers.mkdir(parents=True)
    text = (SPECS / "one.yaml").read_text().replace("570.133.20", "550.163.01")
    (leftovers / "nvidia.yaml").write_text(text)
    assert codes(machine) == {"spec-leftover": False}
    machine.layout.gate_config.parent.mkdir(parents=True, exist_ok=True)
    machine.layout.gate_config.write_text(
        f"schema_version: 1\ncdi_spec_dirs: [{machine.layout.cdi_spec_dir}, {leftovers}]\n"
    )
    assert codes(machine) == {"spec-leftover": False, "spec-driver-changed": True}
