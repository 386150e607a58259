"""Fixtures of the grants tests."""

from pathlib import Path

import pytest

from grants.store import GrantStore
from tests.grants import cards


@pytest.fixture
def machine(tmp_path: Path) -> cards.Machine:
    """Two cards, index and UUID names, and two render nodes."""
    return cards.machine(tmp_path)


@pytest.fixture
def clock() -> cards.StillClock:
    return cards.StillClock()


@pytest.fixture
def store(machine: cards.Machine, clock: cards.StillClock) -> GrantStore:
    return GrantStore(machine.layout, clock, lock_timeout_s=20.0)
