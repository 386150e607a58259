import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdi.core.catalog import Catalog, SpecFile
from cdi.core.library import Library
from cdi.core.names import QualifiedName
from cdi.core.projection import project
from cdi.core.spec import crashes_daemon, parse_spec
from tests.cdi.hosts import catalog, gpus, shared_spec
from tests.shared_data import shared
from tests.strategies import specs

ALL = tuple(Library)
A, B = (f"GPU-1a2b000{digit}-5c1e-4d2a-9b7f-a0c01a2b000{digit}" for digit in "01")
ANNOTATED = """cdiVersion: 0.6.0
kind: vv.com/dd
annotations:
  org.mobyproject.buildkit.device.autoallow: "true"
  Org.MobyProject.BuildKit.Device.class: x
  kept: "1"
devices:
- name: a
  annotations: {org.mobyproject.buildkit.device.autoallow: "true"}
  containerEdits: {env: [A=1]}
- name: b
  containerEdits: {env: [B=1]}
containerEdits: {env: [TOP=1], mounts: [{hostPath: /a, containerPath: /b}]}
"""
MIXED = """cdiVersion: 1.1.0
kind: vv.com/dd
devices:
- {name: plain, containerEdits: {env: [A=1]}}
- {name: gids, containerEdits: {additionalGids: [44]}}
- {name: net, containerEdits: {netDevices: [{hostInterfaceName: a, name: b}]}}
"""


def name(text):
    return QualifiedName.parse(text)


def only(projection):
    assert len(projection) == 1
    return next(iter(projection.values()))


def test_granted_devices_and_nothing_else():
    found = project(catalog(("etc/a.yaml", 0, gpus({0: A, 1: B}))), [name("nvidia.com/gpu=1")], libraries=ALL)
    assert found.left_out == {}
    spec = parse_spec(only(found))
    assert [device.name for device in spec.devices] == ["1"]
    assert [node.path for node in spec.container_edits.device_nodes] == ["/dev/nvidiactl"]
    assert spec.cdi_version == "0.5.0"


def test_buildkit_annotations_are_removed_and_others_kept():
    found = project(catalog(("a", 0, ANNOTATED)), [name("vv.com/dd=a")], libraries=ALL)
    spec = parse_spec(only(found))
    assert dict(spec.annotations) == {"kept": "1"}
    assert spec.devices[0].annotations == {}
    assert spec.cdi_version == "0.6.0"
    assert spec.container_edits.env == ("TOP=1",)
    assert spec.container_edits.mounts[0].host_path == "/a"


def test_version_is_the_lowest_for_what_is_left():
    found = project(
        catalog(("a", 0, MIXED), library=Library.V1_1_0), [name("vv.com/dd=plain")], libraries=ALL
    )
    assert parse_spec(only(found), library=Library.V0_6_2).cdi_version == "0.3.0"


@pytest.mark.parametrize(
    ("libraries", "left_out"),
    [
        ([Library.V1_1_0], set()),
        ([Library.V1_0_1], {"net"}),
        ([Library.V0_7_2, Library.V1_1_0], {"net"}),
        (list(Library), {"gids", "net"}),
        ([], set()),
    ],
)
def test_what_a_library_cannot_load_is_left_out_and_told(libraries, left_out):
    found = catalog(("a", 0, MIXED), library=Library.V1_1_0)
    projection = project(found, list(found.devices), libraries=libraries)
    assert {each.device for each in projection.left_out} == left_out
    assert all(projection.left_out.values())
    for library in libraries:
        names = {device.name for device in parse_spec(only(projection), library=library).devices}
        assert names == {"plain", "gids", "net"} - left_out


def test_top_level_edits_that_a_library_cannot_load_leave_out_all_devices():
    text = MIXED + "containerEdits: {netDevices: [{hostInterfaceName: x, name: y}]}\n"
    found = catalog(("a", 0, text), library=Library.V1_1_0)
    projection = project(found, list(found.devices), libraries=[Library.V1_0_1])
    assert dict(projection) == {}
    assert len(projection.left_out) == 3


def test_a_field_that_a_newer_library_dropped():
    edits = "{intelRdt: {enableCMT: true}}"
    text = f"cdiVersion: 0.7.0\nkind: vv.com/dd\ndevices: [{{name: a, containerEdits: {edits}}}]\n"
    found = catalog(("a", 0, text))
    assert set(project(found, list(found.devices), libraries=[Library.V1_1_0]).left_out) == set(found.devices)
    assert project(found, list(found.devices), libraries=[Library.V1_0_1]).left_out == {}


def test_unknown_names_are_told():
    projection = project(catalog(), [name("vv.com/dd=a")], libraries=ALL)
    assert dict(projection) == {}
    assert set(projection.left_out) == {name("vv.com/dd=a")}


def test_one_file_for_each_source_under_a_stable_name():
    other = ANNOTATED.replace("name: a", "name: c").replace("name: b", "name: d")
    found = catalog(("etc/a", 0, ANNOTATED), ("etc/b", 0, other))
    both = project(found, list(found.devices), libraries=ALL)
    assert len(both) == 2
    assert set(project(found, [name("vv.com/dd=c")], libraries=ALL)) < set(both)
    assert all(file.endswith(".json") and "/" not in file and not file.startswith(".") for file in both)
    assert dict(project(found, list(reversed(found.devices)), libraries=ALL)) == dict(both)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(specs(Library.V1_1_0), st.data())
def test_every_file_loads_everywhere_and_holds_a_subset(spec, data):
    found = Catalog.of([SpecFile(path="etc/x.yaml", priority=0, spec=spec)])
    granted = data.draw(st.sets(st.sampled_from(sorted(found.devices))))
    projection = project(found, granted, libraries=ALL)
    held = set()
    for content in projection.values():
        assert not crashes_daemon(content)
        for library in ALL:
            read = parse_spec(content, library=library)
            assert read.container_edits == spec.container_edits
            names = {read.qualified(device) for device in read.devices}
        held |= names
    assert held | set(projection.left_out) == granted
    assert not held & set(projection.left_out)


SPECS = shared("cdi", "specs")


@pytest.mark.skipif(SPECS is None, reason="no corpora beside this checkout")
@pytest.mark.parametrize("file", sorted(path.name for path in SPECS.glob("*.yaml")) if SPECS else [])
def test_real_specs(file):
    found = shared_spec(SPECS / file)
    projection = project(
        found, list(found.devices), libraries=[Library.V0_7_2, Library.V1_0_1, Library.V1_1_0]
    )
    assert projection.left_out == {}
    assert {device.name for device in parse_spec(only(projection)).devices} == {
        each.device for each in found.devices
    }
