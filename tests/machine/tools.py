"""Stand-ins for the programs that setup asks."""

from pathlib import Path

SPECS = Path(__file__).parent / "specs"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def nvidia_ctk(folder: Path, spec: Path, *, version: str = "1.20.0", wsl: Path = SPECS / "wsl.yaml") -> Path:
    """Prints `spec` for `cdi generate`, `wsl` with `--mode=wsl`; fails where `NVIDIA_CTK_*` names a file."""
    return script(
        folder / "nvidia-ctk",
        f"""\
case "$*" in
--version) echo NVIDIA Container Toolkit CLI version {version}; echo commit: abc;;
"cdi generate --format=yaml") [ -z "$NVIDIA_CTK_CDI_OUTPUT_FILE_PATH" ] && exec cat {spec};;
"cdi generate --format=yaml --mode=wsl") exec cat {wsl};;
*) echo "what is $*" >&2; exit 1;;
esac""",
    )
