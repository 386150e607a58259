"""The rules that a grant or revoke can break, and the errors that tell of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from base.errors import NotFoundError, RdcError, RefusedError


class GrantRule(StrEnum):
    """Stable codes of the rules that a grant or revoke can break."""

    MALFORMED_REPO = "malformed-repo"
    MALFORMED_DEVICE = "malformed-device"
    UNKNOWN_DEVICE = "unknown-device"
    DUPLICATE_DEVICE = "duplicate-device"
    ALREADY_EXCLUSIVE = "already-exclusive"
    OVERLAPS_EXCLUSIVE = "overlaps-exclusive"
    ALREADY_SHARED = "already-shared"
    OVERLAPS_SHARED = "overlaps-shared"
    EXPIRY_PAST = "expiry-past"
    VRAM_CAP = "vram-cap"
    MALFORMED_TEXT = "malformed-text"
    NOT_GRANTED = "not-granted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """One rule that a request breaks.

    Args:
        rule: stable code.
        device: the device as the request wrote it; empty when the rule is not about one.
        detail: what is wrong, with the offending values.
        remedy: the way forward, with a command to paste where there is one.
    """

    rule: GrantRule
    device: str
    detail: str
    remedy: str


class _BrokenError(RdcError):
    """Shared by the two errors below; `code` is the first broken rule's."""

    def __init__(self, broken: Sequence[BrokenRule]) -> None:
        super().__init__(
            "; ".join(f"{each.detail} [{each.rule.value}]" for each in broken),
            hint="; ".join(dict.fromkeys(each.remedy for each in broken if each.remedy)),
        )
        self.broken = tuple(broken)

    def to_json(self) -> dict[str, str]:
        """As `RdcError.to_json`, with the first broken rule as the code."""
        return {**super().to_json(), "code": self.broken[0].rule.value}


class GrantRefusedError(_BrokenError, RefusedError):
    """A grant that breaks rules; nothing was granted."""


class NotGrantedError(_BrokenError, NotFoundError):
    """A revoke of what the repo does not hold; nothing was revoked."""
