"""A clock that stands still until it is told to go on."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Starts at noon of 30 November 2026; `sleep` lets time pass without waiting."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 30, 12, tzinfo=UTC) + timedelta(seconds=self._passed_s)

    def monotonic_s(self) -> float:
        return self._passed_s

    def sleep(self, seconds: float) -> None:
        self._passed_s += seconds
