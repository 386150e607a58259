from datetime import timedelta

from base.clock import SystemClock


def test_instants_are_aware_utc_and_durations_never_go_back() -> None:
    clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)
    first = clock.monotonic_s()
    assert clock.monotonic_s() >= first
