"""Variables that device runtimes take for a request of devices. Pure.

Source: facts on the seed systems, headline 3: runsc runs NVIDIA's hook with the value of
NVIDIA_VISIBLE_DEVICES, and Docker's CDI injection appends its `void` instead of replacing what an image or
a client set, so that a client granted one card would get them all. The gate therefore sets it where
anything could read it: when a device is requested, or when the runtime is not runc. A plain container under
runc is left alone, as nothing there reads it.
"""

from gate.core.sandbox import RUNC

NVIDIA = "NVIDIA_VISIBLE_DEVICES"
_OWNED = frozenset({
    NVIDIA, "AMD_VISIBLE_DEVICES", "NVIDIA_IMEX_CHANNELS", "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH",
})  # fmt: skip
"""Read by device runtimes as requests for devices."""
_PREFIXES = ("NVIDIA_", "AMD_")


def owned_environment(
    env: tuple[str, ...] | None, *, devices: bool, runtime: str
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The environment to emit and the warnings about what was taken out.

    With a device or another runtime, variables that ask for devices are dropped and
    NVIDIA_VISIBLE_DEVICES=void is put at the end; the same value that a CDI spec of NVIDIA's sets itself.
    """
    if not devices and runtime in RUNC:
        return env, ()
    kept, taken = [], []
    for entry in env or ():
        if not entry.startswith(_PREFIXES):
            kept.append(entry)
            continue
        name, _, value = entry.partition("=")
        if name not in _OWNED:
            kept.append(entry)
        elif name != NVIDIA or value != "void":
            taken.append(name)
    warnings = tuple(
        f"{name} is set by the gate, devices come from --device" for name in dict.fromkeys(taken)
    )
    return (*kept, f"{NVIDIA}=void"), warnings
