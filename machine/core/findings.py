"""What a look at the machine finds. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """`ERROR`: something does not work or is refused. `WARNING`: worth knowing."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong; `repo` is empty for the machine, `check` is stable."""

    repo: str
    check: str
    level: Level
    detail: str
    remedy: str


def error(repo: str, check: str, detail: str, remedy: str) -> Finding:
    """Something that does not work or is refused."""
    return Finding(repo=repo, check=check, level=Level.ERROR, detail=detail, remedy=remedy)


def warning(repo: str, check: str, detail: str, remedy: str) -> Finding:
    """Something worth knowing."""
    return Finding(repo=repo, check=check, level=Level.WARNING, detail=detail, remedy=remedy)
