"""Specs that NVIDIA's generator really wrote, against hosts that changed since."""

import pytest

from cdi.core.catalog import SpecFile
from cdi.core.library import Library
from cdi.core.resolve import HostNode, NotANode
from cdi.core.spec import parse_spec
from cdi.core.stale import REMEDIES, StaleCode, leftovers, stale
from tests.cdi.hosts import FakeProbe, character
from tests.shared_data import shared

SPEC = """\
cdiVersion: 0.7.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes: [{path: /dev/nvidia0, major: 195}, {path: /dev/x, hostPath: /dev/nvidia-uvm, major: 510}]
containerEdits:
  mounts:
  - {hostPath: /usr/lib/libcuda.so.570.133.20, containerPath: /usr/lib/libcuda.so.570.133.20}
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [enable-cuda-compat, --host-driver-version=570.133.20]
"""
HOST: dict[str, HostNode | NotANode] = {
    "/dev/nvidia0": character(195, 0),
    "/dev/nvidia-uvm": character(510, 0),
    "/usr/lib/libcuda.so.570.133.20": NotANode.FILE,
    "/usr/bin/nvidia-cdi-hook": NotANode.SYMLINK,
}


def real(name: str) -> SpecFile:
    path = shared("cdi", "specs", name)
    if path is None:
        pytest.skip("the shared corpora are not here")
    return SpecFile(path=name, priority=0, spec=parse_spec(path.read_bytes(), library=Library.V1_1_0))


def file(text: str, path: str = "/etc/cdi/a.yaml", priority: int = 0) -> SpecFile:
    return SpecFile(path=path, priority=priority, spec=parse_spec(text.encode(), library=Library.V1_1_0))


def codes(
    host: dict[str, HostNode | NotANode], driver: str | None = "570.133.20", text: str = SPEC
) -> list[str]:
    found = stale([file(text)], FakeProbe(host), driver_version=driver)
    assert all(each.path == "/etc/cdi/a.yaml" and each.detail for each in found)
    assert all(REMEDIES[each.code] for each in found)
    return [each.code.value for each in found]


def test_a_spec_that_fits() -> None:
    assert codes(HOST) == []
    assert codes(HOST, driver=None) == []


@pytest.mark.parametrize(
    ("path", "now", "code"),
    [
        ("/dev/nvidia0", None, StaleCode.NODE_MISSING),
        ("/dev/nvidia0", character(195, 1), StaleCode.NODE_CHANGED),
        ("/dev/nvidia0", character(196, 0), StaleCode.NODE_CHANGED),
        ("/dev/nvidia0", NotANode.FILE, StaleCode.NODE_CHANGED),
        ("/dev/nvidia-uvm", character(508, 0), StaleCode.NODE_CHANGED),
        ("/usr/lib/libcuda.so.570.133.20", None, StaleCode.MOUNT_MISSING),
        ("/usr/bin/nvidia-cdi-hook", None, StaleCode.HOOK_MISSING),
    ],
)
def test_what_changed(path: str, now: HostNode | NotANode | None, code: StaleCode) -> None:
    host = {key: value for key, value in HOST.items() if key != path}
    assert codes(host if now is None else {**host, path: now}) == [code.value]


def test_another_driver_is_loaded() -> None:
    assert codes(HOST, driver="580.65.06") == ["spec-driver-changed"]
    without_hook = "\n".join(SPEC.splitlines()[:-4]) + "\n"
    assert codes(HOST, driver="580.65.06", text=without_hook) == ["spec-driver-changed"]
    other_kind = SPEC.replace("nvidia.com/gpu", "example.com/gpu")
    assert codes(HOST, driver="580.65.06", text=other_kind) == []


def test_many_missing_files_are_one_finding() -> None:
    mounts = ", ".join(f"{{hostPath: /lib/{n}, containerPath: /lib/{n}}}" for n in range(9))
    text = (
        f"cdiVersion: 0.5.0\nkind: a.com/bb\ndevices: [{{name: a, containerEdits: {{mounts: [{mounts}]}}}}]\n"
    )
    (found,) = stale([file(text)], FakeProbe(), driver_version=None)
    assert found.detail == "/lib/0, /lib/1, /lib/2 and 6 more"


def test_leftovers_win_over_what_setup_wrote() -> None:
    mine, later = file(SPEC), file(SPEC, "/var/run/cdi/nvidia.yaml", 1)
    assert leftovers([mine, file(SPEC.replace('"0"', '"1"'), "/var/run/cdi/b.yaml", 1)], ["/etc/cdi"]) == ()
    (found,) = leftovers([mine, later], ["/etc/cdi/"])
    assert (found.path, found.code) == ("/var/run/cdi/nvidia.yaml", StaleCode.LEFTOVER)
    assert "nvidia.com/gpu=0" in found.detail
    assert leftovers([later, file(SPEC, priority=2)], ["/etc/cdi"]) == ()


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("ubuntu-570-4gpu-ctk1.14.6.yaml", "570.133.20"),
        ("ubuntu-570-4gpu-ctk1.19.1.yaml", "570.133.20"),
        ("debian13-550-1gpu-ctk1.20.0.yaml", "550.163.01"),
        ("headless-570-8gpu-ctk1.18.2.yaml", "570.133.20"),
        ("wsl-ctk1.20.0.yaml", None),
    ],
)
def test_real_specs_tell_their_driver(spec: str, version: str | None) -> None:
    parsed = real(spec)
    found = {each.code: each.detail for each in stale([parsed], FakeProbe(), driver_version="999.1")}
    if version is None:
        assert StaleCode.DRIVER_CHANGED not in found
    else:
        assert found[StaleCode.DRIVER_CHANGED] == f"it is for driver {version}, and 999.1 is loaded"
    same = {each.code for each in stale([parsed], FakeProbe(), driver_version=version)}
    assert StaleCode.DRIVER_CHANGED not in same


def test_a_changed_uvm_major_is_seen() -> None:
    """With `nvidia-smi` still working: the spec of before the reboot, on the host of after it."""
    specs = [real("ubuntu-570-4gpu-ctk1.19.1.yaml"), real("ubuntu-570-4gpu-uvm-major-changed.yaml")]
    host = FakeProbe(
        {
            node.source: character(node.major, node.minor)
            for edits in (
                specs[1].spec.container_edits,
                *(each.container_edits for each in specs[1].spec.devices),
            )
            for node in edits.device_nodes
        }
    )
    found = {
        each.path for each in stale(specs, host, driver_version=None) if each.code is StaleCode.NODE_CHANGED
    }
    assert found == {specs[0].path}
