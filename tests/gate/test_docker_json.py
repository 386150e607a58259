"""JSON: each claim about the decoder that the gate stands on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from gate.core.docker_json import MAX_BODY_BYTES, MAX_DEPTH, check_depth, decode, encode

REFUSED = [
    b"", b"  ", b"tru", b"{", b'{"a":1,}', b"[1,]", b"{'a':1}", b"01", b"+1", b"-", b".5", b"1.", b"/**/{}",
    b'{"a":1,"a":2}', b'{"x":{"a":1,"\\u0061":2}}', b'[{"a":{"b":1,"b":1}}]',
    b'{"a":1,"b":{},"a":null}',
    b"NaN", b"[Infinity]", b"-Infinity", b'{"a":NaN}', b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00",
    b"{\x00}\x00",
    b"{}x", b"{} {}", b"{}}garbage", b'{} ] {"a":1}', b"{}\x00", b"\x0c{}", b"\xc2\xa0{}",
    b'"\\ud800"', b'"\\udc00"', b'"\\ud800x"', b'"\xff"', b'{"\xff":1}', b'"\xed\xa0\x80"', b'"\xc0\xaf"',
    b'"\x01"', b'"a\nb"', b'"\\x41"', b'"\\u12"', b"[" * 10000 + b"]" * 10000, b"[" * 300 + b"]" * 300,
    b'{"a":' * 5000 + b"1" + b"}" * 5000, b"1" * 6000,
]  # fmt: skip


@pytest.mark.parametrize("raw", REFUSED, ids=lambda raw: repr(raw[:30]))
def test_refused(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(raw)


def test_too_large() -> None:
    with pytest.raises(MalformedError):
        decode(b'"' + b"a" * MAX_BODY_BYTES + b'"')
    assert decode(b'"' + b"a" * (MAX_BODY_BYTES - 2) + b'"')


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b" {} \r\n\t", {}),
        (b'{"a":1,"A":2}', {"a": 1, "A": 2}),
        (b"-0", 0),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\u0000\\/"', "\0/"),
        (b"9223372036854775808", 9223372036854775808),
    ],
)
def test_accepted(raw: bytes, value: object) -> None:
    assert decode(raw) == value


@pytest.mark.parametrize("raw", [b"1.0", b"1e3", b"1E400", b"-0.0"])
def test_fractions_and_exponents_are_told_from_integers(raw: bytes) -> None:
    assert type(decode(raw)) is float


@given(st.binary(max_size=60))
def test_total_over_bytes_and_never_more_lenient_than_json(raw: bytes) -> None:
    try:
        value = decode(raw)
    except MalformedError:
        return
    assert json.loads(raw) == value


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_encoding_reads_back(value: object) -> None:
    raw = encode(value)  # type: ignore[arg-type]
    assert raw.isascii()
    assert decode(raw) == value


def test_depth() -> None:
    def nested(levels: int) -> object:
        value: object = 1
        for level in range(levels):
            value = [value] if level % 2 else {"a": value}
        return value

    check_depth(nested(MAX_DEPTH - 1))  # type: ignore[arg-type]
    with pytest.raises(MalformedError):
        check_depth(nested(MAX_DEPTH + 1))  # type: ignore[arg-type]
