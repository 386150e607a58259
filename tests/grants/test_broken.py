"""How refusals are told."""

import pytest

from base.errors import NotFoundError, RdcError, RefusedError
from grants.core.broken import BrokenRule, GrantRefusedError, GrantRule, NotGrantedError

UNKNOWN = BrokenRule(rule=GrantRule.UNKNOWN_DEVICE, device="x", detail="device x is unknown", remedy="'list'")
TWICE = BrokenRule(rule=GrantRule.DUPLICATE_DEVICE, device="x", detail="device x is twice", remedy="'list'")


@pytest.mark.parametrize(
    ("error", "parent", "exit_code", "http_status"),
    [(GrantRefusedError, RefusedError, 3, 403), (NotGrantedError, NotFoundError, 5, 404)],
)
def test_kinds(
    error: type[GrantRefusedError | NotGrantedError], parent: type[RdcError], exit_code: int, http_status: int
) -> None:
    made = error([UNKNOWN])
    assert isinstance(made, parent)
    assert (made.exit_code, made.http_status) == (exit_code, http_status)


def test_every_rule_is_told_with_its_code_and_each_remedy_once() -> None:
    error = GrantRefusedError([UNKNOWN, TWICE])
    assert error.broken == (UNKNOWN, TWICE)
    for each in error.broken:
        assert f"{each.detail} [{each.rule}]" in error.message
    assert error.hint == "'list'"
    assert error.to_json() == {"code": "unknown-device", "message": error.message, "hint": error.hint}
