"""Request targets: one reading or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from gate.core.target import build_target, parse_query, parse_target


@pytest.mark.parametrize(
    ("target", "version", "segments"),
    [
        (b"/_ping", None, ("_ping",)),
        (b"/v1.44/containers/json", "1.44", ("containers", "json")),
        (b"/networks/", None, ("networks",)),
        (b"/info/", None, ("info", "")),
        (b"/v1.51/%63ontainers/create", "1.51", ("containers", "create")),
        (b"/images/a%2Fb/json", None, ("images", "a/b", "json")),
        (b"/images/a%40b:1/json", None, ("images", "a@b:1", "json")),
        (b"/x?y=/../z", None, ("x",)),
    ],
)
def test_read(target: bytes, version: str | None, segments: tuple[str, ...]) -> None:
    parsed = parse_target(target)
    assert (parsed.api_version, parsed.segments) == (version, segments)


@pytest.mark.parametrize(
    "target",
    [
        b"", b"*", b"/", b"//", b"http://d/v1.44/info", b"/v1.44", b"/v1.44/", b"/v1.44//info",
        b"/v1.44/./info", b"/v1.44/x/../info", b"/%2e%2e/info", b"/%2e/info", b"/v1.44./info",
        b"/v1..44/info",
        b"/v1.044/info", b"/v01.44/info", b"/v1.44.0.0/info", b"/V1.44/info", b"/v1.4/info", b"/v2.44/info",
        b"/v1/info", b"/a%5Cb", b"/a\\b", b"/a%00b", b"/a%0Ab", b"/a%zz", b"/a%", b"/a%4", b"/a b", b"/a\tb",
        b"/a\xc3\xa9", b"/a%C3%A9", b"/a%7F", b"/info#x", b"/" + b"a" * 65536, b"info",
    ],
)  # fmt: skip
def test_refused(target: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_target(target)


def test_an_escape_is_decoded_once() -> None:
    assert parse_target(b"/%2563").segments == ("%63",)


@given(st.binary(max_size=60))
def test_total_over_bytes(raw: bytes) -> None:
    try:
        parsed = parse_target(b"/" + raw)
    except MalformedError:
        return
    assert all(segment not in {".", ".."} for segment in parsed.segments)
    assert all(parsed.segments[:-1])
    assert parsed.segments[0]


QUERIES = [
    (b"", (), ()),
    (b"name=a", (("name", "a"),), ()),
    (b"name=a%20b+c", (("name", "a b c"),), ()),
    (b"&&name=", (("name", ""),), ()),
    (b"name", (("name", ""),), ()),
    (b"t=1&t=2&x=1&x=2", (("t", "1"), ("t", "2")), ("x",)),
    (b"n%61me=a", (("name", "a"),), ()),
    (b"Name=a", (), ("Name",)),
]


@pytest.mark.parametrize(("raw", "pairs", "dropped"), QUERIES)
def test_query(raw: bytes, pairs: tuple[tuple[str, str], ...], dropped: tuple[str, ...]) -> None:
    assert parse_query(raw, single={"name"}, multi={"t"}) == (pairs, dropped)


@pytest.mark.parametrize(
    "raw",
    [
        b"name=a&name=b",
        b"name=a&n%61me=b",
        b"x=1;name=a",
        b"name=%zz",
        b"name=%",
        b"x=%",
        b"name=%ff",
        b"name=%00",
    ],
)
def test_query_refused(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_query(raw, single={"name"}, multi={"t"})


TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"))


@given(st.lists(st.tuples(st.sampled_from(["t", "u"]), TEXT)))
def test_a_built_query_reads_back(pairs: list[tuple[str, str]]) -> None:
    target = build_target("1.44", "/x", pairs)
    assert target.isascii()
    read, dropped = parse_query(parse_target(target).query, single=(), multi={"t", "u"})
    assert (read, dropped) == (tuple(pairs), ())
