from pathlib import Path

import pytest

from base.errors import RdcError, RefusedError
from cdi.core.spec import SpecError
from machine.core.inventory import Platform
from machine.nvidia_ctk import Toolkit, find_toolkit, generate, judge, old_engines
from machine.programs import ProgramError
from tests.machine.tools import SPECS, nvidia_ctk, script
from tests.shared_data import shared

ONE = (SPECS / "one.yaml").read_bytes()
GIDS = ONE.replace(b"0.5.0", b"0.7.0") + b"    additionalGids: [44]\n"


def toolkit(path: Path, version: str | None = "1.20.0") -> Toolkit:
    return Toolkit(path=path, version=version)


def test_the_spec_is_what_the_toolkit_printed(tmp_path: Path) -> None:
    nvidia_ctk(tmp_path, SPECS / "one.yaml", version="1.18.2")
    environ = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH": "/var/run/cdi/nvidia.yaml",
    }
    found = find_toolkit(environ)
    assert found == Toolkit(path=tmp_path / "nvidia-ctk", version="1.18.2")
    assert generate(found, Platform.NATIVE, environ) == ONE
    assert generate(found, Platform.WSL, environ) == (SPECS / "wsl.yaml").read_bytes()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("exit 1", ProgramError, "ended with 1"),
        (
            "echo 'failed add device \"all\": invalid device, empty device edits' >&2; exit 1",
            ProgramError,
            "MIG on",
        ),
        ("echo 'failed to locate libcuda.so.570.1' >&2; exit 1", ProgramError, "different versions"),
        ("true", RefusedError, "not written"),
        ("echo '{'", RefusedError, "not written"),
        ("echo 'kind: n/gpu'", RefusedError, "crash"),
        (f"sed s,nvidia.com/gpu,example.com/gpu, {SPECS}/one.yaml", RefusedError, "example.com/gpu"),
        (f"sed s,0.5.0,9.0.0, {SPECS}/one.yaml", RefusedError, "9.0.0"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, error: type[RdcError], words: str) -> None:
    program = script(tmp_path / "nvidia-ctk", text)
    with pytest.raises(error) as caught:
        generate(toolkit(program), Platform.NATIVE, {"PATH": "/usr/bin:/bin"})
    assert words in caught.value.message + caught.value.hint


def test_a_toolkit_without_a_version_is_not_run(tmp_path: Path) -> None:
    program = script(tmp_path / "nvidia-ctk", "exit 1")
    assert find_toolkit({"PATH": str(tmp_path)}) == toolkit(program, None)
    with pytest.raises(ProgramError, match="version"):
        generate(toolkit(program, None), Platform.NATIVE, {})
    assert find_toolkit({"PATH": ""}) is None


def test_judging() -> None:
    assert judge(ONE, "it").kind == "nvidia.com/gpu"
    assert old_engines(ONE) == ()
    assert judge(GIDS, "it").cdi_version == "0.7.0"
    assert old_engines(GIDS) == ("Docker 25.0",)
    with pytest.raises(RefusedError, match="crash"):
        judge(ONE.replace(b"hooks:", b"mounts: [null]\n    hooks:"), "it")


def test_every_spec_that_the_real_toolkit_writes_is_accepted() -> None:
    folder = shared("cdi", "specs")
    if folder is None:
        pytest.skip("the shared corpora are not here")
    specs = sorted(each for each in folder.iterdir() if "-ctk1." in each.name)
    assert len(specs) > 20
    for path in specs:
        try:
            judge(path.read_bytes(), path.name)
        except (RefusedError, SpecError) as exc:
            pytest.fail(f"{path.name}: {exc}")
