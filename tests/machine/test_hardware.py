from pathlib import Path

import pytest

from machine.core.inventory import Platform
from machine.hardware import Hardware
from tests.machine.host import NVIDIA_VERSION, OPEN_NVIDIA_VERSION, Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_an_empty_machine(tmp_path: Path) -> None:
    hardware = Hardware(tmp_path / "nothing")
    assert hardware.platform() is Platform.NATIVE
    assert hardware.nvidia_driver() is None
    assert hardware.nvidia_kernel_cards() == ()
    assert hardware.nvidia_on_the_bus() == ()
    assert hardware.render_nodes() == ()
    assert hardware.kfd() is False


@pytest.mark.parametrize("template", [NVIDIA_VERSION, OPEN_NVIDIA_VERSION])
@pytest.mark.parametrize("version", ["570.133.20", "580.65.06", "610.57.04", "575.64"])
def test_driver_version(host: Host, template: str, version: str) -> None:
    host.write(
        "proc/driver/nvidia/version", template.format(version) + "GCC version:  gcc version 14.2.0 (Debian)\n"
    )
    assert Hardware(host.root).nvidia_driver() == version


def test_wsl_by_its_kernel_or_its_device(host: Host) -> None:
    host.write("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    assert Hardware(host.root).platform() is Platform.WSL
    host.write("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n")
    assert Hardware(host.root).platform() is Platform.NATIVE
    host.node("dev/dxg", 10, 258)
    assert Hardware(host.root).platform() is Platform.WSL


def test_a_regular_file_is_no_device(host: Host) -> None:
    host.write("dev/dxg", "")
    host.write("dev/kfd", "")
    assert Hardware(host.root).platform() is Platform.NATIVE
    assert Hardware(host.root).kfd() is False


def test_render_nodes(host: Host) -> None:
    host.render_node(129, "0000:0A:00.0", "nvidia", mode=0o666, gid=0)
    host.render_node(128, None, "vgem", gid=44)
    host.write("sys/class/drm/renderD130/dev", "226:130\n")  # the kernel knows it, udev has not made it
    host.write("sys/class/drm/card0/dev", "226:0\n")
    host.write("sys/class/drm/renderD131/dev", "nonsense\n")
    found = Hardware(host.root).render_nodes()
    assert [(each.path, each.minor, each.mode, each.gid, each.driver, each.pci) for each in found] == [
        ("/dev/dri/renderD128", 128, 0o660, 44, "vgem", None),
        ("/dev/dri/renderD129", 129, 0o666, 0, "nvidia", "0000:0a:00.0"),
    ]


def test_amd_cards_count_by_address(host: Host) -> None:
    host.amd_card(130, "0000:03:00.0", mem_info_vram_total="many", product_name="")
    host.amd_card(128, "0000:83:00.0", mem_info_vram_total="1024")
    hardware = Hardware(host.root)
    found = hardware.amd_cards(hardware.render_nodes())
    assert [(each.index, each.pci, each.name, each.driver, each.memory_bytes) for each in found] == [
        (0, "0000:03:00.0", "AMD GPU", "amdgpu", None),
        (1, "0000:83:00.0", "AMD GPU", "amdgpu", 1024),
    ]
