"""What is wrong with a spec, where, and by which stable code. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from base.errors import MalformedError


class ProblemCode(StrEnum):
    """Stable names of the rules that a spec can break."""

    UNREADABLE = "unreadable"
    EXTENSION = "extension"
    TOO_LARGE = "too-large"
    TOO_DEEP = "too-deep"
    ALIASES = "excessive-aliases"
    SYNTAX = "syntax"
    EMPTY = "empty"
    DUPLICATE_KEY = "duplicate-key"
    AMBIGUOUS_KEY = "ambiguous-key"
    BAD_KEY = "bad-key"
    BAD_SCALAR = "bad-scalar"
    UNKNOWN_FIELD = "unknown-field"
    WRONG_TYPE = "wrong-type"
    OUT_OF_RANGE = "out-of-range"
    VERSION = "version"
    VERSION_TOO_LOW = "version-too-low"
    KIND = "kind"
    NO_DEVICES = "no-devices"
    DEVICE_NAME = "device-name"
    DUPLICATE_DEVICE = "duplicate-device"
    EMPTY_EDITS = "empty-edits"
    ENV = "env"
    DEVICE_NODE = "device-node"
    MOUNT = "mount"
    HOOK = "hook"
    INTEL_RDT = "intel-rdt"
    NET_DEVICE = "net-device"
    CRASH_NULL = "crash-null"
    CRASH_ONE_LETTER = "crash-one-letter"


CRASH_CODES = frozenset({ProblemCode.CRASH_NULL, ProblemCode.CRASH_ONE_LETTER})
"""A file with one of these ends a daemon that reads it, and keeps it from starting again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """One broken rule.

    `line` and `column` count from 1 and point at the value (at the key, for a key that should not be there;
    at what should hold it, for a missing one); they are None where there is no place in the file. `pointer`
    is a JSON pointer (RFC 6901) in the file's own spelling of the keys.
    """

    message: str
    code: ProblemCode
    line: int | None = None
    column: int | None = None
    pointer: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}, column {self.column}: " if self.line is not None else ""
        at = f" at {self.pointer}" if self.pointer else ""
        return f"{where}{self.message}{at} [{self.code}]"


class SpecError(MalformedError):
    """A spec that the library would not load, with everything that is wrong with it."""

    def __init__(self, problems: tuple[SpecProblem, ...]) -> None:
        super().__init__(
            "; ".join(str(problem) for problem in problems) or "invalid CDI spec",
            hint="correct the file, or generate it anew",
        )
        self.problems = problems
