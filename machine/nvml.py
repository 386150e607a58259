"""Asking NVML, in a process of its own: a broken driver may hang or crash whoever asks it.

`python -m machine.nvml` asks and prints; `ask` runs that and reads it. Every answer that a card does not give
is left open, and the first real failure of a card is told with it. Source: NVML API reference.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from base.errors import RdcError
from machine.core.inventory import (
    Card,
    CcEnvironment,
    ComputeMode,
    ConfidentialComputing,
    Fault,
    Mig,
    MigInstance,
    MigMode,
    Vendor,
    plain,
    read,
)
from machine.core.nvml import (
    FUNCTION_NOT_FOUND,
    NOT_SUPPORTED,
    NvmlReport,
    cuda_version,
    fault_of,
    kernel_address,
    mig_profile,
)

if TYPE_CHECKING:
    from ctypes import c_void_p

TIMEOUT_S = 60.0
_MIB = 1024 * 1024
_WSL_LIBRARIES = "/usr/lib/wsl/lib"

T = TypeVar("T")


def ask(environ: Mapping[str, str], *, wsl: bool = False, timeout_s: float = TIMEOUT_S) -> NvmlReport:
    """What NVML says, at most after `timeout_s`; never raises for what it does.

    Args:
        environ: the environment of the process that asks; `LD_LIBRARY_PATH` decides which library it finds.
        wsl: look for the library where Windows puts it, too.
        timeout_s: how long it may take; a driver that initialises many cards takes several seconds.
    """
    environment = dict(environ)
    if wsl:
        path = environment.get("LD_LIBRARY_PATH", "")
        environment["LD_LIBRARY_PATH"] = f"{path}:{_WSL_LIBRARIES}" if path else _WSL_LIBRARIES
    try:
        done = subprocess.run(
            (sys.executable, "-m", "machine.nvml"),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"NVML has not answered within {timeout_s:g} s: see the kernel log, and reboot"
        return NvmlReport(fault=Fault(code="nvml-timeout", message=message))
    try:
        if done.returncode == 0:
            return read(NvmlReport, json.loads(done.stdout))
    except (ValueError, KeyError, RdcError):
        pass
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    what = f"was ended by signal {-done.returncode}" if done.returncode < 0 else "failed"
    message = f"asking NVML {what}{': ' if last else ''}{last}; see the kernel log"
    return NvmlReport(fault=Fault(code="nvml-crashed", message=message))


class _Nvml:
    """pynvml, and the answers that are not failures."""

    def __init__(self) -> None:
        import pynvml  # noqa: PLC0415 - in the process that asks, and nowhere else

        self.lib = pynvml

    def get(self, question: "Callable[[], T]", faults: list[Fault]) -> "T | None":
        """The answer, or None; a failure other than "not supported" is added to `faults`."""
        try:
            return question()
        except self.lib.NVMLError as exc:
            if exc.value not in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}:
                faults.append(fault_of(exc.value, str(exc)))
            return None

    def report(self) -> NvmlReport:
        """Everything."""
        lib, ignored = self.lib, list[Fault]()
        try:
            lib.nvmlInit()
            count = lib.nvmlDeviceGetCount()
        except lib.NVMLError as exc:
            return NvmlReport(fault=fault_of(exc.value, str(exc)))
        return NvmlReport(
            driver_version=self.get(lib.nvmlSystemGetDriverVersion, ignored),
            cuda_version=cuda_version(self.get(lib.nvmlSystemGetCudaDriverVersion_v2, ignored) or 0),
            confidential_computing=self._confidential_computing(),
            cards=tuple(self._card(index) for index in range(count)),
        )

    def _confidential_computing(self) -> ConfidentialComputing | None:
        lib, ignored = self.lib, list[Fault]()
        state = self.get(lib.nvmlSystemGetConfComputeState, ignored)
        if state is None:
            return None
        environments = (CcEnvironment.UNAVAILABLE, CcEnvironment.SIMULATION, CcEnvironment.PRODUCTION)
        ready = self.get(lib.nvmlSystemGetConfComputeGpusReadyState, ignored)
        return ConfidentialComputing(
            environment=_nth(environments, state.environment) or CcEnvironment.UNAVAILABLE,
            feature=state.ccFeature == lib.NVML_CC_SYSTEM_FEATURE_ENABLED,
            dev_tools=state.devToolsMode != lib.NVML_CC_SYSTEM_DEVTOOLS_MODE_OFF,
            ready=None if ready is None else ready == lib.NVML_CC_ACCEPTING_CLIENT_REQUESTS_TRUE,
        )

    def _card(self, index: int) -> Card:
        lib, faults = self.lib, list[Fault]()
        handle = self.get(lambda: lib.nvmlDeviceGetHandleByIndex(index), faults)
        if handle is None:
            return Card(vendor=Vendor.NVIDIA, index=index, fault=next(iter(faults), None))
        pci = self.get(lambda: lib.nvmlDeviceGetPciInfo(handle), faults)
        memory = self.get(lambda: lib.nvmlDeviceGetMemoryInfo(handle), faults)
        mode = self.get(lambda: lib.nvmlDeviceGetComputeMode(handle), faults)
        return Card(
            vendor=Vendor.NVIDIA,
            index=index,
            name=self.get(lambda: lib.nvmlDeviceGetName(handle), faults),
            uuid=self.get(lambda: lib.nvmlDeviceGetUUID(handle), faults),
            pci=None if pci is None else kernel_address(_text(pci.busId)),
            minor=self.get(lambda: lib.nvmlDeviceGetMinorNumber(handle), faults),
            memory_bytes=None if memory is None else memory.total,
            compute_mode=None if mode is None else _nth(tuple(ComputeMode), mode),
            mig=self._mig(handle, faults),
            fault=next(iter(faults), None),
        )

    def _mig(self, handle: "c_void_p", faults: list[Fault]) -> Mig | None:
        lib = self.lib
        modes = (MigMode.DISABLED, MigMode.ENABLED)
        failed = list[Fault]()
        answer = self.get(lambda: lib.nvmlDeviceGetMigMode(handle), failed)
        faults += failed
        if failed:
            return None
        if answer is None:
            return Mig(mode=MigMode.NOT_SUPPORTED, pending=MigMode.NOT_SUPPORTED, instances=())
        mode, pending = (_nth(modes, each) or MigMode.NOT_SUPPORTED for each in answer)
        slots = self.get(lambda: lib.nvmlDeviceGetMaxMigDeviceCount(handle), faults) or 0
        found = (self._instance(handle, slot) for slot in range(slots if mode is MigMode.ENABLED else 0))
        return Mig(mode=mode, pending=pending, instances=tuple(each for each in found if each is not None))

    def _instance(self, card: "c_void_p", slot: int) -> MigInstance | None:
        lib, ignored = self.lib, list[Fault]()
        # An empty slot is "not found", and slots need not be filled in order.
        handle = self.get(lambda: lib.nvmlDeviceGetMigDeviceHandleByIndex(card, slot), ignored)
        uuid = None if handle is None else self.get(lambda: lib.nvmlDeviceGetUUID(handle), ignored)
        if uuid is None:
            return None
        size = self.get(lambda: lib.nvmlDeviceGetAttributes_v2(handle), ignored)
        name = self.get(lambda: lib.nvmlDeviceGetName(handle), ignored)
        return MigInstance(
            uuid=uuid,
            profile=mig_profile(name or ""),
            gpu_instance=self.get(lambda: lib.nvmlDeviceGetGpuInstanceId(handle), ignored),
            compute_instance=self.get(lambda: lib.nvmlDeviceGetComputeInstanceId(handle), ignored),
            memory_bytes=None if size is None else size.memorySizeMB * _MIB,
            multiprocessors=None if size is None else size.multiprocessorCount,
        )


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _nth(values: tuple[T, ...], index: int) -> T | None:
    return values[index] if 0 <= index < len(values) else None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(plain(_Nvml().report())))
