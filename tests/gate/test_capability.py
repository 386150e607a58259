"""Capability names in Docker's spellings."""

import pytest

from gate.core.capability import DEFAULT_CAPABILITIES, HARDWARE_CAPABILITIES, canonical_capability


@pytest.mark.parametrize("name", ["NET_ADMIN", "net_admin", "CAP_NET_ADMIN", "cap_Net_Admin"])
def test_one_name(name: str) -> None:
    assert canonical_capability(name) == "NET_ADMIN"


def test_only_ascii_letters_change_case() -> None:
    assert canonical_capability("\u017fys_admin") != "SYS_ADMIN"


def test_dockers_defaults_and_hardware_are_apart() -> None:
    assert len(DEFAULT_CAPABILITIES) == 14
    assert not DEFAULT_CAPABILITIES & HARDWARE_CAPABILITIES
