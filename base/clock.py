"""Instants and durations, so that everything else can be told the time instead of asking for it."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where shells get the time from; tests pass one that stands still."""

    def now(self) -> datetime:
        """The current instant as an aware UTC datetime."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start that never go back; for durations."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The current instant as an aware UTC datetime."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()
