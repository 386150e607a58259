import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi.core.paths import clean


@pytest.mark.parametrize(
    ("path", "cleaned"),
    [
        ("/dev//nvidia0", "/dev/nvidia0"),
        ("/dev/./x/", "/dev/x"),
        ("/a/b/../c", "/a/c"),
        ("/../x", "/x"),
        ("/", "/"),
        ("", "."),
        (".", "."),
        ("a/..", "."),
        ("../a", "../a"),
        ("a/../../b", "../b"),
        ("//x//y", "/x/y"),
        ("a//b/.", "a/b"),
    ],
)
def test_clean(path, cleaned):
    assert clean(path) == cleaned


@given(st.text(st.sampled_from("/.ab")))
def test_clean_is_idempotent(path):
    assert clean(clean(path)) == clean(path)
