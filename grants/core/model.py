"""What a grant is. Pure.

Source: design sections 2 and 6.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NewType

from base.errors import MalformedError
from cdi.core.names import QualifiedName
from cdi.core.pin import Pin

RepoGuid = NewType("RepoGuid", str)
"""A repo's identity, which outlives its name; also the name of its run-time directory."""

_GUID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}", re.ASCII)
_INSTANT = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z", re.ASCII
)

NOTE_MAX_CHARS = 500
GRANTED_BY_MAX_CHARS = 200
VRAM_MB_MAX = 2**31 - 1


class Sharing(StrEnum):
    """Whether other repos may hold the same device."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


class Isolation(StrEnum):
    """How strongly a use of the device must be fenced; see design section 7."""

    WHOLE_GPU = "whole-gpu"
    MPS = "mps"
    MIG = "mig"
    TEE = "tee"
    PERMISSIVE = "permissive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One repo may use one device, from `granted_at` until it expires or is revoked.

    Instants are aware UTC datetimes of whole seconds. `pin` is what the name meant when it was granted.
    """

    repo: RepoGuid
    device: QualifiedName
    sharing: Sharing
    isolation: Isolation | None
    vram_mb: int | None
    expires_at: datetime | None
    granted_at: datetime
    granted_by: str
    note: str
    pin: Pin

    def live(self, now: datetime) -> bool:
        """True until the instant of expiry, which no longer belongs to the grant."""
        return self.expires_at is None or now < self.expires_at


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRequest:
    """What an operator asks for one repo and one device.

    `device` is the text as written, so that a name that cannot be parsed is told together with every other
    broken rule. An expiry is taken to the second, rounded down.
    """

    repo: RepoGuid
    device: str
    sharing: Sharing = Sharing.SHARED
    isolation: Isolation | None = None
    vram_mb: int | None = None
    expires_at: datetime | None = None
    granted_by: str
    note: str = ""


def parse_guid(text: str) -> RepoGuid:
    """The text as a repo GUID: 1 to 64 ASCII letters, digits, `-`, `_`, so that it is a safe file name.

    Raises:
        MalformedError: it is something else.
    """
    if not _GUID.fullmatch(text):
        raise MalformedError(
            f"malformed repo GUID {text!r}", hint="1 to 64 ASCII letters, digits, '-' and '_', no '-' first"
        )
    return RepoGuid(text)


def parse_instant(text: str) -> datetime:
    """An instant as the store writes it, `2026-11-30T08:00:00Z`; no other spelling.

    One spelling makes the order of texts the order of instants.

    Raises:
        MalformedError: another spelling, or no such day or time.
    """
    if not _INSTANT.fullmatch(text):
        raise MalformedError(f"malformed instant {text!r}", hint="write it as 2026-11-30T08:00:00Z")
    try:
        return datetime.fromisoformat(text)
    except ValueError as exc:
        raise MalformedError(f"no such instant: {text!r}") from exc


def format_instant(instant: datetime) -> str:
    """The instant as the store writes it, in UTC, rounded down to the second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def whole_seconds(instant: datetime) -> datetime:
    """The instant in UTC, rounded down to the second."""
    return instant.astimezone(UTC).replace(microsecond=0)


def text_problem(text: str, limit: int) -> str | None:
    """Why a free text may not be stored, or None. Control characters would reach terminals and logs."""
    if len(text) > limit:
        return f"is longer than {limit} characters"
    if not text.isprintable():
        return "holds control or unprintable characters"
    return None
