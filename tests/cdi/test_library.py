from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi.core.library import Library, library_of_engine


@pytest.mark.parametrize(
    ("engine", "library"),
    [
        ("25.0.15", "0.6.2"),
        ("25.0.0", "0.6.2"),
        ("25.0.17", "0.8.0"),
        ("26.1.5", "0.7.2"),
        ("26.1.5+dfsg1", "0.7.2"),
        ("27.5.1", "0.8.0"),
        ("28.0.4", "0.8.0"),
        ("28.1.1", "0.8.0"),
        ("28.2.0", "1.0.1"),
        ("28.5.2+dfsg4", "1.0.1"),
        ("v28.5.2", "1.0.1"),
        ("29.0.0", "1.0.1"),
        ("29.7.2", "1.1.0"),
        ("29.7", "1.1.0"),
        ("30", "1.1.0"),
        ("20.10.24", "0.6.2"),
        ("", "1.0.1"),
        ("dev", "1.0.1"),
        (" 28.5.2\n", "1.0.1"),
        ("28.5.2-rc.1", "1.0.1"),
    ],
)
def test_library_of_engine(engine, library):
    assert library_of_engine(engine) == library


@given(st.text())
def test_library_of_engine_is_total(text):
    assert library_of_engine(text) in Library


def test_releases_know_more_and_more_versions():
    known = [set(library.spec_versions) for library in Library]
    assert all(older < newer for older, newer in pairwise(known))
    assert [library.spec_versions[-1] for library in Library] == ["0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"]


def test_at_least():
    assert Library.V1_1_0.at_least(Library.V0_6_2)
    assert Library.V1_0_1.at_least(Library.V1_0_1)
    assert not Library.V0_8_0.at_least(Library.V1_0_1)


def test_every_release_names_an_engine():
    assert all(library.engine.startswith("Docker ") for library in Library)
