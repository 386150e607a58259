"""Copies, images and builds keep every byte, and the gate does not grow with them."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.engine import IMAGE, Docker
from tests.system.clients import RUN, both
from tests.system.conftest import Gated


def test_copies_in_and_out_keep_every_byte(gated28: Gated, sleeper: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "data").write_bytes(os.urandom(3_000_000))
    (source / "link").symlink_to("data")

    def action(cli: Docker) -> tuple[bytes, str]:
        cli.ok("cp", str(source), f"{sleeper}:/tmp/in")
        out = tmp_path / cli.host.rpartition("/")[2] / "out"
        out.parent.mkdir(exist_ok=True)
        cli.ok("cp", f"{sleeper}:/tmp/in", str(out))
        cli.ok("exec", sleeper, "rm", "-r", "/tmp/in")
        return (out / "data").read_bytes(), str((out / "link").readlink())

    assert both(gated28, action) == ((source / "data").read_bytes(), "data")


def test_a_copy_into_a_missing_container_tells_so(gated28: Gated, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(50_000_000))

    def action(cli: Docker) -> tuple[int, str]:
        done = cli.run("cp", str(big), "absent:/")
        return done.returncode, done.stderr.splitlines()[-1]  # before it, what the client says of its pipe

    result = both(gated28, action)
    assert isinstance(result, tuple)
    assert result[0] == 1


def test_saved_images_load_again(gated28: Gated, tmp_path: Path) -> None:
    def action(cli: Docker) -> tuple[list[str], str, str]:
        archive = tmp_path / "image.tar"
        cli.ok("tag", IMAGE, "saved:1")
        cli.ok("save", "-o", str(archive), "saved:1")
        with tarfile.open(archive) as saved:
            names = sorted(saved.getnames())
        cli.ok("rmi", "saved:1")
        loaded = cli.ok("load", "-i", str(archive))
        piped = subprocess.run(
            f"'{cli.command()[0]}' save saved:1 | '{cli.command()[0]}' load", shell=True, env=cli.env(),
            text=True, capture_output=True, check=True,
        )  # fmt: skip
        return names, loaded, piped.stdout

    both(gated28, action)


DOCKERFILE = f"FROM {IMAGE}\nARG WORD\nRUN echo $WORD > /built\nCOPY file /file\nCMD cat /built /file\n"


@pytest.mark.parametrize("buildkit", ["1", "0"])
def test_builds(gated28: Gated, tmp_path: Path, buildkit: str) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "file").write_text("copied\n")

    def action(cli: Docker) -> str:
        cli.ok(
            "build", "--no-cache", "--network", "none", "--build-arg", "WORD=argued", "-t", "built:1",
            str(tmp_path), env={"DOCKER_BUILDKIT": buildkit},
        )  # fmt: skip
        return cli.ok(*RUN, "built:1")

    assert both(gated28, action) == "argued\ncopied\n"


def test_a_failing_build_shows_its_output_and_fails(gated28: Gated, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo about to fail && exit 3\n")
    for buildkit in ("1", "0"):
        done = gated28.gate.run(
            "build", "--network", "none", str(tmp_path), env={"DOCKER_BUILDKIT": buildkit}
        )
        raw = gated28.raw.run("build", "--network", "none", str(tmp_path), env={"DOCKER_BUILDKIT": buildkit})
        assert done.returncode == raw.returncode != 0
        assert "about to fail" in done.stdout + done.stderr


def test_a_gibibyte_passes_without_growth(gated28: Gated, sleeper: str, tmp_path: Path) -> None:
    """`cp` and `load` of 1 GiB each: the gate's peak memory stays where it was, give or take its buffers."""
    gigabyte = tmp_path / "big"
    with gigabyte.open("wb") as file:
        file.truncate(1 << 30)
    image = tmp_path / "image.tar"
    machine = gated28.machine
    machine.memory_kb()
    peak = machine.memory_kb("VmHWM")
    gated28.gate.ok("cp", str(gigabyte), f"{sleeper}:/dev/shm/../../tmp/big", timeout_s=55)
    gated28.raw.ok("exec", sleeper, "sh", "-c", "test $(stat -c %s /tmp/big) = 1073741824 && rm /tmp/big")
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY big /big\n")
    gated28.raw.ok("build", "-q", "-t", "big:1", "--network", "none", str(tmp_path), timeout_s=55)
    gated28.raw.ok("save", "-o", str(image), "big:1", timeout_s=55)
    gated28.raw.ok("rmi", "-f", "big:1")
    gated28.gate.ok("load", "-i", str(image), timeout_s=55)
    gated28.raw.ok("rmi", "-f", "big:1")
    assert machine.memory_kb("VmHWM") - peak < 8 * 1024
