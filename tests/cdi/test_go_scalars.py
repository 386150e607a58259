import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi.core.go_scalars import (
    ScalarError,
    format_float,
    go_text,
    json_number,
    key_of_float,
    resolve,
    string_of,
)

TAG = "tag:yaml.org,2002:"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b101", 5),
        ("-0b11", -3),
        ("1_000", 1000),
        ("+5", 5),
        ("08", 8.0),
        ("-0", 0),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("2001-12-14", "2001-12-14"),
        ("on", True),
        ("y", True),
        ("N", False),
        ("oN", "oN"),
        ("null", None),
        ("~", None),
        ("", None),
        ("nUll", "nUll"),
        ("1.0", 1.0),
        (".5", 0.5),
        (".5_0", 0.5),
        ("._5", "._5"),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1e400", "1e400"),
        ("1e", "1e"),
        (".", "."),
        ("-", "-"),
        ("0x", "0x"),
        ("0b12", "0b12"),
        ("_1", "_1"),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
        ("-9223372036854775809", -float(2**63)),
        ("+9223372036854775808", float(2**63)),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("inf", "inf"),
        ("nan", "nan"),
        ("Infinity", "Infinity"),
        ("0777777777777777777777777", 7.777777777777778e23),
        ("0x1p-2", "0x1p-2"),
        ("1,000", "1,000"),
    ],
)
def test_plain(text, value):
    found = resolve(text, tag=None, plain=True)
    assert found == value
    assert type(found) is type(value)


def test_nan():
    found = resolve(".NaN", tag=None, plain=True)
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize("text", ["0", "on", "null", "", "1.5", "<<"])
def test_quoted_is_text(text):
    assert resolve(text, tag=None, plain=False) == text


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", "str", "5"),
        ("5", "int", 5),
        ("5", "float", 5.0),
        ("1.5", "float", 1.5),
        ("yes", "bool", True),
        ("", "null", None),
        ("YWI=", "binary", "ab"),
        ("//8=", "binary", "\ufffd\ufffd"),
        ("2001-1-1", "timestamp", "2001-1-1"),
        ("5", "foo", "5"),
        ("010", "int", 8),
    ],
)
def test_tagged(text, kind, value):
    found = resolve(text, tag=TAG + kind, plain=True)
    assert found == value
    assert type(found) is type(value)


def test_non_specific_tag_is_text():
    assert resolve("5", tag="!", plain=True) == "5"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", "int"),
        ("1.5", "int"),
        ("5", "bool"),
        ("x", "null"),
        ("x", "float"),
        ("YQ", "binary"),
        ("x", "timestamp"),
        ("", "int"),
    ],
)
def test_tag_that_does_not_fit(text, kind):
    with pytest.raises(ScalarError):
        resolve(text, tag=TAG + kind, plain=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1.5, "1.5"),
        (0.1, "0.1"),
        (100000.0, "100000"),
        (1000000.0, "1e+06"),
        (123456.7, "123456.7"),
        (1234567.5, "1.2345675e+06"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1e20, "1e+20"),
        (-0.0, "-0"),
        (0.30000000000000004, "0.3"),
        (5e-324, "0"),
        (1e300, "+Inf"),
        (-1e300, "-Inf"),
        (math.nan, "NaN"),
        (16777217.0, "1.6777216e+07"),
    ],
)
def test_format_float(value, text):
    assert format_float(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, ".inf"), (-math.inf, "-.inf"), (math.nan, ".nan"), (2.5, "2.5")]
)
def test_key_of_float(value, text):
    assert key_of_float(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (438.0, "438"),
        (1e6, "1000000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5, "1.5"),
        (0.1, "0.1"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-0.0, "-0"),
        (2**64 - 1, "18446744073709551615"),
        (123.25, "123.25"),
    ],
)
def test_json_number(value, text):
    assert json_number(value) == text


def test_string_of():
    assert [string_of(True), string_of(False), string_of(8), string_of(1.0)] == ["true", "false", "8", "1"]


@pytest.mark.parametrize(
    ("data", "text"), [(b"a\xc3\xa9", "aé"), (b"\xff\xfe", "\ufffd\ufffd"), (b"\xe2\x82", "\ufffd\ufffd")]
)
def test_go_text(data, text):
    assert go_text(data) == text


@given(
    st.text(),
    st.none() | st.sampled_from(["str", "int", "float", "bool", "null", "binary", "timestamp", "x"]),
    st.booleans(),
)
def test_resolve_is_total(text, kind, plain):
    with suppress(ScalarError):
        resolve(text, tag=None if kind is None else TAG + kind, plain=plain)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_json_number_reads_back(value):
    assert float(json_number(value)) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_format_float_reads_back_single_precision(value):
    assert float(format_float(value)) == pytest.approx(value, rel=1e-7, abs=0)
