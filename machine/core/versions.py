"""Versions and lists in what container programs print. Pure.

Source: the output of `dockerd`, `containerd`, `runc`, `runsc` and `nvidia-ctk --version`, and of
`runsc nvproxy list-supported-drivers`.
"""

import re

_DATED = re.compile(r"\brelease-\d{8}\.\d+\b", re.ASCII)
_NUMBERED = re.compile(r"(?<![\w./:-])v?(\d+\.\d+(?:\.\d+)?(?:[-+~.][0-9A-Za-z.+~-]+)?)", re.ASCII)
_DRIVER = re.compile(r"\d{3,4}(?:\.\d{1,4}){1,2}", re.ASCII)


def program_version(output: str) -> str | None:
    """The first version in the text: gVisor's `release-20250407.0`, or `1.7.24` and what belongs to it."""
    dated = _DATED.search(output)
    if dated is not None:
        return dated[0]
    numbered = _NUMBERED.search(output)
    return numbered[1] if numbered is not None else None


def supported_drivers(output: str) -> tuple[str, ...]:
    """The drivers that runsc lists, one a line, oldest first: its own order changes from run to run."""
    listed = {line.strip() for line in output.splitlines()}
    return tuple(sorted(filter(_DRIVER.fullmatch, listed), key=_numbers))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
