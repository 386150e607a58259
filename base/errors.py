"""The one error tree.

A subclass exists only where some caller treats it differently. `message` names the offending value, `hint`
the way forward; the command line prints both, the gate puts both into Docker's `{"message": ...}`.
"""

from typing import ClassVar


class RdcError(Exception):
    """Something that stops the request, told in words for the person who made it.

    Args:
        message: what is wrong, with the offending value.
        hint: what to do about it, ideally a command to paste; empty when there is nothing to say.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def to_json(self) -> dict[str, str]:
        """The error as the `-o json` outputs and logs show it: `code`, `message`, `hint`."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class MalformedError(RdcError):
    """Bytes or text that do not mean what they should."""

    code = "malformed"
    http_status = 400


class UsageError(RdcError):
    """A command that cannot be carried out as written."""

    code = "usage"
    exit_code = 2
    http_status = 400


class RefusedError(RdcError):
    """A rule says no."""

    code = "refused"
    exit_code = 3
    http_status = 403


class AccessError(RdcError):
    """The operating system says no."""

    code = "permission"
    exit_code = 4
    http_status = 403


class NotFoundError(RdcError):
    """A named thing does not exist."""

    code = "not-found"
    exit_code = 5
    http_status = 404


class UnreachableError(RdcError):
    """A daemon or machine does not answer."""

    code = "unreachable"
    exit_code = 6
    http_status = 502


class DamagedError(RdcError):
    """A stored file cannot be trusted; nothing was changed."""

    code = "damaged"
