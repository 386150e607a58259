"""Instants, GUIDs and texts as the store writes them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from grants.core.model import Grant, format_instant, parse_guid, parse_instant, text_problem, whole_seconds
from tests.grants.cards import NOW
from tests.grants.strategies import grants


@given(st.integers(-62_000_000_000, 250_000_000_000), st.integers(0, 999_999), st.integers(-720, 720))
def test_instants_round_trip_and_sort_as_texts(second: int, micros: int, zone: int) -> None:
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second, microseconds=micros)
    there = instant.astimezone(timezone(timedelta(minutes=zone)))
    assert parse_instant(format_instant(there)) == whole_seconds(there) <= instant
    assert len(format_instant(there)) == 20
    assert (format_instant(there) <= format_instant(NOW)) == (whole_seconds(there) <= NOW)


@given(st.text(max_size=30) | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", fullmatch=True))
def test_parse_instant_is_total_and_knows_one_spelling(text: str) -> None:
    try:
        instant = parse_instant(text)
    except MalformedError:
        return
    assert format_instant(instant) == text


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a\n", "a b", "-a", "_a", "a" * 65, "ä", "a\x00"])
def test_what_is_no_guid(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_guid(text)


@pytest.mark.parametrize("text", ["a", "0", "6f2c9f1e-0f3c-4a7e-9c1d-2b8a5d0e4f11", "A_b-9", "a" * 64])
def test_what_is_a_guid(text: str) -> None:
    assert parse_guid(text) == text


@pytest.mark.parametrize(
    ("text", "good"),
    [("", True), ("für Ana", True), ("a" * 10, True), ("a" * 11, False), ("\t", False), ("\ud800", False)],
)
def test_texts(text: str, good: bool) -> None:
    assert (text_problem(text, 10) is None) == good


@given(grants())
def test_a_grant_lives_until_its_end_and_no_longer(grant: Grant) -> None:
    if grant.expires_at is None:
        assert grant.live(datetime.max.replace(tzinfo=UTC))
    else:
        assert not grant.live(grant.expires_at)
        assert grant.live(grant.expires_at - timedelta(microseconds=1))
