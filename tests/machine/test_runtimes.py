from pathlib import Path

from machine.core.inventory import Gvisor, Runtime
from machine.runtimes import find_runtimes, gvisor, version_of
from tests.machine.tools import script

ENVIRON = {"PATH": "/usr/bin:/bin"}


def test_versions_and_drivers(tmp_path: Path) -> None:
    for name, text in (
        ("dockerd", "echo Docker version 28.5.2, build x"),
        ("containerd", "exit 1"),
        ("runc", "echo runc version 1.2.3"),
        ("runsc", 'case "$*" in nvproxy*) echo 570.133.20;; *) echo version release-20250407.0;; esac'),
    ):
        script(tmp_path / name, text)
    found = find_runtimes(tmp_path, ENVIRON)
    assert found == (
        Runtime(name="dockerd", path=f"{tmp_path}/dockerd", version="28.5.2"),
        Runtime(name="containerd", path=f"{tmp_path}/containerd", version=None),
        Runtime(name="runc", path=f"{tmp_path}/runc", version="1.2.3"),
        Runtime(name="runsc", path=f"{tmp_path}/runsc", version="release-20250407.0"),
    )
    assert gvisor(found, ENVIRON) == Gvisor(version="release-20250407.0", nvproxy_drivers=("570.133.20",))
    assert gvisor(found[:3], ENVIRON) is None


def test_a_runsc_that_lists_no_drivers(tmp_path: Path) -> None:
    script(
        tmp_path / "runsc",
        '[ "$1" = nvproxy ] && { echo usage; exit 2; }; echo runsc version release-20230101.0',
    )
    runsc = Runtime(name="runsc", path=f"{tmp_path}/runsc", version="release-20230101.0")
    assert gvisor((runsc,), ENVIRON) == Gvisor(version="release-20230101.0", nvproxy_drivers=())
    assert version_of(tmp_path / "absent", ENVIRON) is None
