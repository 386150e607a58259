import json
import subprocess
import sys
from pathlib import Path

import pytest

from base.errors import MalformedError, RefusedError
from base.layout import Layout
from base.run_lock import held
from cdi.directories import load_catalog
from machine.inventory import load
from machine.provision import Action, SetupReport, describe, set_up
from machine.runtimes import PROGRAMS
from tests.engine import REPOSITORY
from tests.fake_clock import FakeClock
from tests.machine.host import Host
from tests.machine.tools import SPECS, nvidia_ctk, script
from tests.nvml.fake import FOLDER, nvml_environment

UUID = "GPU-2f68f999-7b41-e64a-3709-0c8c4fa756c0"


class Machine:
    """A host, a root and tools of its own."""

    def __init__(self, folder: Path) -> None:
        self.host = Host(folder / "host")
        self.layout = Layout(folder / "root", self.host.root)
        self.layout.root.mkdir()
        self.tools = folder / "tools"
        for name in PROGRAMS:
            script(self.tools / name, f"echo {name} version 1.2.3")
        self.clock = FakeClock()
        self.scenario = "no_driver"

    def one_card(self) -> None:
        self.scenario = "one"
        self.host.nvidia_driver("570.133.20")
        self.host.nvidia_card("0000:01:00.0", 0, UUID)
        self.host.write("usr/bin/nvidia-cdi-hook", "")
        nvidia_ctk(self.tools, SPECS / "one.yaml")

    @property
    def environ(self) -> dict[str, str]:
        environ = nvml_environment(FOLDER / f"scenarios/{self.scenario}.txt")
        return {**environ, "PATH": f"{self.tools}:/usr/bin:/bin"}

    def set_up(self) -> SetupReport:
        return set_up(self.layout, self.clock, self.environ)

    def names(self) -> list[str]:
        return sorted(map(str, load_catalog([self.layout.cdi_spec_dir]).devices))

    def files(self) -> dict[str, bytes]:
        root = self.layout.root
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.name != "setup.lock"
        }


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def messages(report: SetupReport, *, fatal: bool) -> str:
    return "\n".join(each.message for each in report.problems if each.fatal is fatal)


def test_a_machine_without_a_gpu_gets_an_empty_inventory(machine: Machine) -> None:
    report = machine.set_up()
    assert report.problems == ()
    assert list(machine.files()) == ["etc/rediacc/gpu/inventory.json"]
    document = json.loads(load(machine.layout).raw)
    assert (document["gpus"], document["render_nodes"], document["nvidia"]) == ([], [], None)


def test_twice_gives_the_same_files(machine: Machine) -> None:
    machine.one_card()
    machine.host.render_node(128, "0000:01:00.0", "nvidia")
    machine.host.node("dev/kfd", 511, 0, mode=0o660, gid=104)
    machine.host.amd_card(129, "0000:03:00.0")
    first = machine.set_up()
    assert messages(first, fatal=True) == ""
    files = machine.files()
    assert sorted(files) == [
        "etc/cdi/nvidia.yaml",
        "etc/cdi/rediacc-amd.json",
        "etc/cdi/rediacc-dri.json",
        "etc/rediacc/gpu/inventory.json",
    ]
    assert files["etc/cdi/nvidia.yaml"] == (SPECS / "one.yaml").read_bytes()
    assert machine.names() == [
        "nvidia.com/gpu=0", f"nvidia.com/gpu={UUID}", "nvidia.com/gpu=all", "rediacc.io/amd=all",
        "rediacc.io/amd=gpu0", "rediacc.io/dri=renderD128", "rediacc.io/dri=renderD129",
    ]  # fmt: skip
    assert {each.action for each in first.files} == {Action.WRITTEN}
    before = {
        path: (machine.layout.root / path).stat().st_ino for path in files if path.startswith("etc/cdi")
    }
    machine.clock.sleep(3600)
    second = machine.set_up()
    assert {each.action for each in second.files} == {Action.UNCHANGED}
    assert machine.files() == files
    assert {path: (machine.layout.root / path).stat().st_ino for path in before} == before
    assert load(machine.layout).checked_at == machine.clock.now()


def test_what_is_gone_is_taken_away(machine: Machine) -> None:
    machine.host.render_node(128, None, "i915")
    machine.set_up()
    assert machine.names() == ["rediacc.io/dri=renderD128"]
    (machine.host.root / "dev/dri/renderD128").unlink()
    report = machine.set_up()
    assert [(each.kind, each.action) for each in report.files] == [
        ("rediacc.io/dri", Action.REMOVED),
        ("", Action.WRITTEN),
    ]
    assert machine.names() == []


def test_wsl_is_generated_in_its_own_mode(machine: Machine) -> None:
    machine.scenario = "wsl"
    machine.host.node("dev/dxg", 10, 125)
    nvidia_ctk(machine.tools, SPECS / "one.yaml")
    report = machine.set_up()
    assert machine.names() == ["nvidia.com/gpu=all"]
    assert "single cards cannot be granted" in messages(report, fatal=False)


def test_without_the_toolkit(machine: Machine) -> None:
    machine.one_card()
    (machine.tools / "nvidia-ctk").unlink()
    report = machine.set_up()
    assert "nvidia-ctk" in messages(report, fatal=True)
    assert machine.names() == []
    assert load(machine.layout).inventory.gpus[0].uuid == UUID


def test_a_failing_toolkit_leaves_the_spec_as_it_was(machine: Machine) -> None:
    machine.one_card()
    machine.set_up()
    for text in ("echo broken >&2; exit 1", "echo 'kind: n/gpu'", "true"):
        script(machine.tools / "nvidia-ctk", f'[ "$1" = --version ] && exec echo version 1.18.2; {text}')
        report = machine.set_up()
        assert "the NVIDIA spec is as it was" in messages(report, fatal=True)
        assert (machine.layout.cdi_spec_dir / "nvidia.yaml").read_bytes() == (SPECS / "one.yaml").read_bytes()


def test_driver_and_libraries_that_differ(machine: Machine) -> None:
    machine.one_card()
    machine.set_up()
    machine.scenario = "mismatch"
    report = machine.set_up()
    assert "different versions" in messages(report, fatal=True)
    assert machine.names()
    (card,) = load(machine.layout).inventory.gpus
    assert card.fault is not None
    assert describe(card) == "card (0000:01:00.0)"


def test_a_lost_card_is_told_and_the_others_count(machine: Machine) -> None:
    machine.one_card()
    machine.scenario = "one_lost"
    report = machine.set_up()
    assert "card 1: the card has fallen off the bus" in messages(report, fatal=False)
    assert "nvidia.com/gpu=0" in machine.names()


def test_specs_that_hide_or_outdo_what_was_written(machine: Machine) -> None:
    machine.one_card()
    machine.layout.cdi_spec_dir.mkdir(parents=True)
    (machine.layout.cdi_spec_dir / "gds.yaml").write_bytes((SPECS / "one.yaml").read_bytes())
    leftover = machine.layout.root / "var/run/cdi/nvidia.yaml"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes((SPECS / "one.yaml").read_bytes())
    report = machine.set_up()
    assert "conflicting device" in messages(report, fatal=True)
    assert str(leftover) in messages(report, fatal=False)


def test_directories_that_do_not_count(machine: Machine) -> None:
    machine.layout.gate_config.parent.mkdir(parents=True)
    machine.layout.gate_config.write_text("schema_version: 1\ncdi_spec_dirs: [/opt/cdi]\n")
    assert "other spec directories" in messages(machine.set_up(), fatal=True)
    machine.layout.gate_config.write_text("nonsense: 1\n")
    with pytest.raises(MalformedError):
        machine.set_up()


def test_one_at_a_time(machine: Machine) -> None:
    machine.layout.run_dir.mkdir(parents=True)
    with held(machine.layout.run_dir / "setup.lock", "a setup"), pytest.raises(RefusedError):
        machine.set_up()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_it_can_be_killed_anywhere_and_run_again(machine: Machine) -> None:
    machine.one_card()
    machine.host.render_node(128, "0000:01:00.0", "nvidia")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.machine.setup_until",
            machine.layout.root,
            machine.host.root,
            machine.environ["PATH"],
        ],
        env=machine.environ,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    fresh, older = map(int, done.stdout.split())
    assert fresh > 15
    assert older > 10
