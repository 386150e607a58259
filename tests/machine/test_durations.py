from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import UsageError
from machine.core.durations import LONGEST, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8h", timedelta(hours=8)),
        ("90m", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(minutes=90)),
        ("1d2h3m4s", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("3660d", LONGEST),
    ],
)
def test_durations_are_read(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "h",
        "0h",
        "0d0h",
        "-1h",
        "1.5h",
        "1 h",
        "8H",
        "1m1h",
        "1h1h",
        "3661d",
        "9999999d",
        "\u0661h",
        "8h\n",
    ],
)
def test_other_texts_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)


@given(st.text(alphabet="0123456789dhms \n", max_size=12) | st.text())
def test_what_is_read_is_positive_and_bounded(text: str) -> None:
    try:
        duration = parse_duration(text)
    except UsageError:
        return
    assert timedelta(0) < duration <= LONGEST
