"""Durations as people write them: `8h`, `90m`, `7d`, `1h30m`. Pure."""

import re
from datetime import timedelta

from base.errors import UsageError

_FORM = re.compile(
    r"(?:(?P<d>\d{1,6})d)?(?:(?P<h>\d{1,6})h)?(?:(?P<m>\d{1,6})m)?(?:(?P<s>\d{1,6})s)?\Z", re.ASCII
)
LONGEST = timedelta(days=3660)
"""Ten years: longer is more likely a typing error than a wish, and 'no expiry' is the default."""


def parse_duration(text: str) -> timedelta:
    """Read days, hours, minutes and seconds in that order, each at most once and at least one of them.

    Raises:
        UsageError: another form, nothing or zero, or longer than ten years.
    """
    match = _FORM.match(text)
    if not text or match is None:
        raise UsageError(f"malformed duration '{text}'", hint="write it like 8h, 90m, 7d or 1h30m")
    parts = {unit: int(value or 0) for unit, value in match.groupdict().items()}
    duration = timedelta(days=parts["d"], hours=parts["h"], minutes=parts["m"], seconds=parts["s"])
    if not timedelta(0) < duration <= LONGEST:
        raise UsageError(
            f"duration '{text}' is out of range",
            hint="more than zero, at most ten years; leave it out for none",
        )
    return duration
