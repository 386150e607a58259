"""Builds and points at the NVML stand-in of `fake_nvml.c`, which the real pynvml loads."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import missing

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "fake_nvml.c"
_FLAGS = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden")


@functools.cache
def _library_dir() -> "tempfile.TemporaryDirectory[str]":
    """A folder with the library, gone when the test process ends."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        missing("cc", "the NVML stand-in is written in C")
    folder = tempfile.TemporaryDirectory(prefix="rdc-nvml-")
    library = Path(folder.name) / "libnvidia-ml.so.1"
    subprocess.run((compiler, *_FLAGS, "-o", library, SOURCE), check=True)
    return folder


def nvml_environment(scenario: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment in which NVML is the stand-in and answers from the file."""
    return {**environ, "LD_LIBRARY_PATH": _library_dir().name, "FAKE_NVML": str(scenario)}
