import os
import stat

import pytest

from cdi.core.resolve import GpuInfo, HostNode, NotANode
from cdi.probe import SystemProbe


def test_lstat_of_this_machine():
    status = os.stat("/dev/null")  # noqa: PTH116 - the same call as the probe's
    wanted = HostNode(type="c", major=1, minor=3, mode=stat.S_IMODE(status.st_mode))
    assert SystemProbe().lstat("/dev/null") == wanted
    assert SystemProbe().lstat("dev/null") == wanted


def test_lstat_below_a_root(tmp_path):
    probe = SystemProbe(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/dev/null")
    assert probe.lstat("/pipe") == HostNode(type="p", major=0, minor=0, mode=0o600)
    assert probe.lstat("/file") is NotANode.FILE
    assert probe.lstat("/link") is NotANode.SYMLINK
    assert probe.lstat("/") is NotANode.DIRECTORY
    assert probe.lstat("/gone") is None
    assert probe.lstat("/nul\0") is None


def test_gpus(tmp_path):
    base = tmp_path / "proc/driver/nvidia/gpus"
    for address, text in (
        ("0000:65:00.0", "Model: \t A\nGPU UUID: \t GPU-1\nDevice Minor: \t 1\n"),
        ("0000:17:00.0", "Device Minor: 0\nGPU UUID: GPU-0"),
        ("0000:99:00.0", "GPU UUID: GPU-9\n"),
        ("0000:98:00.0", "Device Minor: x\n"),
    ):
        (base / address).mkdir(parents=True)
        (base / address / "information").write_text(text)
    (base / "0000:97:00.0").mkdir()
    assert SystemProbe(tmp_path).gpus() == (
        GpuInfo(pci="0000:17:00.0", uuid="GPU-0", minor=0),
        GpuInfo(pci="0000:65:00.0", uuid="GPU-1", minor=1),
    )
    assert SystemProbe(tmp_path / "none").gpus() == ()


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("../../devices/pci0000:00/0000:65:00.0", "0000:65:00.0"),
        ("../x/0000:6A:00.1", "0000:6a:00.1"),
        ("../x/y", None),
    ],
)
def test_pci_of(tmp_path, target, address):
    folder = tmp_path / "sys/dev/char/226:128"
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(target)
    probe = SystemProbe(tmp_path)
    assert probe.pci_of("c", 226, 128) == address
    assert probe.pci_of("b", 226, 128) is None
    assert probe.pci_of("c", 1, 1) is None
