import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdi.core.edits import ContainerEdits, DeviceNode, IntelRdt, Mount, NetDevice
from cdi.core.library import SPEC_VERSIONS, Library
from cdi.core.model import Device, Spec
from cdi.core.problems import ProblemCode
from cdi.core.rules import check, known_version, required_version
from tests.strategies import specs

ENV = ContainerEdits(env=("A=1",))


def spec(edits=ENV, top=None, version="0.3.0", kind="vv.com/dd", name="a", **more):
    device = Device(name=name, container_edits=edits)
    return Spec(
        cdi_version=version, kind=kind, devices=(device,), container_edits=top or ContainerEdits(), **more
    )


@pytest.mark.parametrize(
    ("edits", "version"),
    [
        (ENV, "0.3.0"),
        (ContainerEdits(mounts=(Mount(host_path="a", container_path="b"),)), "0.3.0"),
        (ContainerEdits(mounts=(Mount(host_path="a", container_path="b", type="c"),)), "0.4.0"),
        (ContainerEdits(device_nodes=(DeviceNode(path="a", host_path="a"),)), "0.5.0"),
        (ContainerEdits(additional_gids=(0,)), "0.7.0"),
        (ContainerEdits(intel_rdt=IntelRdt()), "0.7.0"),
        (ContainerEdits(intel_rdt=IntelRdt(schemata=())), "1.1.0"),
        (ContainerEdits(intel_rdt=IntelRdt(enable_monitoring=True)), "1.1.0"),
        (ContainerEdits(net_devices=(NetDevice(host_interface_name="a", name="b"),)), "1.1.0"),
    ],
)
def test_required_version_of_edits(edits, version):
    assert required_version(spec(edits)) == version
    assert required_version(spec(ENV, top=edits)) == version


@pytest.mark.parametrize(
    ("found", "version"),
    [
        (spec(name="0"), "0.5.0"),
        (spec(kind="vv.com/d.d"), "0.6.0"),
        (spec(kind="v.v/dd"), "0.3.0"),
        (spec(annotations={"a": "b"}), "0.6.0"),
        (spec(name="\u0663"), "0.3.0"),
    ],
)
def test_required_version_of_specs(found, version):
    assert required_version(found) == version


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(Library)).flatmap(lambda library: st.tuples(st.just(library), specs(library))))
def test_what_the_strategy_makes_breaks_no_rule(pair):
    library, found = pair
    assert list(check(found, library)) == []
    assert required_version(found) in library.spec_versions


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.5.0", "0.5.0"),
        ("v0.5.0", "0.5.0"),
        ("V0.5.0", None),
        ("vv0.5.0", None),
        ("0.5", None),
        ("", None),
        ("v", None),
    ],
)
def test_known_version(text, version):
    assert known_version(text) == version


def test_all_broken_rules_are_found_in_order():
    found = list(check(spec(ContainerEdits(), version="9", kind="x", name="-"), Library.V1_0_1))
    assert [each.code for each in found] == [
        ProblemCode.VERSION,
        ProblemCode.KIND,
        ProblemCode.DEVICE_NAME,
        ProblemCode.EMPTY_EDITS,
    ]
    assert found[2].tokens == ("devices", 0, "name")


def test_versions_are_ordered():
    assert sorted(SPEC_VERSIONS, key=lambda text: tuple(map(int, text.split(".")))) == list(SPEC_VERSIONS)
