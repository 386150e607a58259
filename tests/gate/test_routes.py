"""`match` remembers short targets, and only those."""

from gate.core import routes
from gate.core.routes import match


def test_short_targets_are_remembered() -> None:
    assert match("GET", b"/_ping") is match("GET", b"/_ping")


def test_long_targets_are_not() -> None:
    target = b"/containers/json?filters=" + b"a" * 300
    assert match("GET", target) == match("GET", target)
    assert match("GET", target) is not match("GET", target)


def test_public_names() -> None:
    assert set(routes.__all__) == {"ROUTES", "Body", "Kind", "Matched", "Route", "match"}
