from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from cdi.core.names import QualifiedName, crashes_library, device_fault, vendor_or_class_fault
from tests.strategies import qualified_names


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nvidia.com/gpu=0", ("nvidia.com", "gpu", "0")),
        ("nvidia.com/gpu=all", ("nvidia.com", "gpu", "all")),
        ("nvidia.com/gpu=mig0:0", ("nvidia.com", "gpu", "mig0:0")),
        ("vendor..com/GPU=0.0.0", ("vendor..com", "GPU", "0.0.0")),
        ("nvidia.com/gpu.coherent=a_b-c", ("nvidia.com", "gpu.coherent", "a_b-c")),
        ("v0/c0=" + "d" * 300, ("v0", "c0", "d" * 300)),
    ],
)
def test_well_formed(text, parts):
    name = QualifiedName.parse(text)
    assert (name.vendor, name.class_, name.device) == parts
    assert str(name) == text
    assert name.kind == f"{parts[0]}/{parts[1]}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpu0",
        "nvidia.com/gpu",
        "nvidia.com=0",
        "/gpu=0",
        "nvidia.com/=0",
        "nvidia.com/gpu=",
        "=0",
        "/=",
        "v/gpu=0",
        "nvidia.com/g=0",
        "1vendor/gpu=0",
        "vendor./gpu=0",
        "ven dor/gpu=0",
        " nvidia.com/gpu=0",
        "nvidia.com/gpu=0 ",
        "nvidia.com/gpu=0\n",
        "nvidia.com/gpu =0",
        "nvidia.com/gpu=-0",
        "nvidia.com/gpu=0-",
        "nvidia.com/gpu=0,1",
        "nvidia.com/gpu=a=b",
        "nvidia.com/gpu/x=0",
        "nvidia.com/gp:u=0",
        "nvidia.com/gpu=é",
        "nvidia.com/gpu=0/x",
        "nvidia.com/gpu=٣",
        "\uff4evidia.com/gpu=0",
        "nvidia.com/gpu=../x",
        "nvidia.com/gpu=*",
        "/dev/nvidia0",
        "nvidia.com/gpu=\x00",
        "nvidia.com/gpu=a\nb",
        "nvidia.com/_gpu=0",
    ],
)
def test_refused(text):
    with pytest.raises(MalformedError) as caught:
        QualifiedName.parse(text)
    assert caught.value.hint


def test_compared_byte_for_byte():
    lower, upper = QualifiedName.parse("nvidia.com/gpu=gpu-a"), QualifiedName.parse("nvidia.com/gpu=GPU-a")
    assert lower != upper
    assert sorted([lower, upper]) == [upper, lower]


@given(qualified_names)
def test_parse_of_str_is_identity(name):
    assert QualifiedName.parse(str(name)) == name


@given(st.text())
def test_parse_is_total(text):
    with suppress(MalformedError):
        assert str(QualifiedName.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "crashes"), [("v", True), ("vv", False), ("1", False), ("é", False), ("", False)]
)
def test_crashes_library(text, crashes):
    assert crashes_library(text) is crashes
    if crashes:
        assert vendor_or_class_fault(text)


@given(st.text(max_size=4))
def test_faults_name_a_reason_or_none(text):
    for fault in (vendor_or_class_fault(text), device_fault(text)):
        assert fault is None or fault
