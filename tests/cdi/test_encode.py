import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdi.core.edits import ContainerEdits, DeviceNode, IntelRdt
from cdi.core.encode import encode_spec
from cdi.core.library import Library
from cdi.core.model import Device, Spec
from cdi.core.spec import parse_spec
from tests.strategies import specs


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(Library)).flatmap(lambda library: st.tuples(st.just(library), specs(library))))
def test_every_release_reads_back_the_same_spec(pair):
    library, spec = pair
    assert parse_spec(encode_spec(spec), library=library) == spec


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(specs(Library.V1_1_0))
def test_is_json_and_stable(spec):
    encoded = encode_spec(spec)
    assert json.loads(encoded)["kind"] == spec.kind
    assert encode_spec(parse_spec(encoded, library=Library.V1_1_0)) == encoded


@pytest.mark.parametrize(
    "value",
    ["\x00", "\x7f", "\x85", "\u2028", "\ufeff", "\uffff", "\U0001f600", "\U0001ffff", "a\nb\t", '\\"/', "é"],
)
def test_awkward_characters(value):
    edits = ContainerEdits(env=(f"A={value}",))
    spec = Spec(cdi_version="0.3.0", kind="vv.com/dd", devices=(Device(name="a", container_edits=edits),))
    assert parse_spec(encode_spec(spec)) == spec


def test_absent_values_are_left_out_and_zeros_that_mean_something_are_not():
    node = DeviceNode(path="/dev/x", file_mode=0, uid=0)
    edits = ContainerEdits(device_nodes=(node,), intel_rdt=IntelRdt())
    spec = Spec(cdi_version="0.7.0", kind="vv.com/dd", devices=(Device(name="a", container_edits=edits),))
    written = json.loads(encode_spec(spec))["devices"][0]["containerEdits"]
    assert written == {"deviceNodes": [{"path": "/dev/x", "fileMode": 0, "uid": 0}], "intelRdt": {}}
