"""A CDI spec for machines without a GPU, and the way specs get into a directory."""

import json
from collections.abc import Mapping
from pathlib import Path

EXAMPLE_UUID = "GPU-7a1b2c3d-0001-4000-8000-0123456789ab"
"""The alias of card 0."""


def example_spec() -> dict[str, object]:
    """A CDI spec like NVIDIA's for two cards, whose device nodes stand on character devices every host has.

    Names: "0", "1", a UUID alias of "0", and "all". /dev/nvidia0 is /dev/zero (1:5), /dev/nvidia1 is
    /dev/full (1:7) and the common /dev/nvidiactl is /dev/null (1:3).
    """

    def node(name: str, host: str) -> dict[str, str]:
        return {"path": f"/dev/{name}", "hostPath": f"/dev/{host}", "type": "c"}

    first, second = node("nvidia0", "zero"), node("nvidia1", "full")
    devices = {"0": [first], "1": [second], EXAMPLE_UUID: [first], "all": [first, second]}
    return {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": nodes}} for name, nodes in devices.items()
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [node("nvidiactl", "null")],
        },
    }


def write_spec(directory: Path, spec: Mapping[str, object], name: str = "nvidia.json") -> Path:
    """Put a spec into a directory in one step; returns its path.

    The temporary file lies in the same directory: the library does not notice one moved in from another.
    """
    path = directory / name
    temporary = directory / f".{name}.new"
    temporary.write_text(json.dumps(spec), encoding="utf-8")
    temporary.replace(path)
    return path
