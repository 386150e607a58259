"""Keeps a client that is refused over and over from filling the audit log: many alike become one line. Pure.

Each repo has a budget of lines. The first denials of a kind (same user, rules and route) are lines of their
own; further ones are counted and told by one line when the window ends, which grows while it goes on. A repo
with too many kinds at once gets one line for the rest. Nothing is left uncounted.
"""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from gate.core.audit_chain import Entry

EACH = 10
"""Denials of one kind within a window that get a line each."""

WINDOW_S = 60.0
LONGEST_WINDOW_S = 300.0
BURST = 100
"""Lines that one repo may cause at once."""

REFILL_PER_S = 0.1
KINDS_PER_REPO = 16
"""Kinds of one repo that are told apart while they are counted."""

_Kind: TypeAlias = "tuple[int, tuple[str, ...], str] | None"


@dataclass(slots=True)
class _Window:
    started_s: float
    length_s: float = WINDOW_S
    passed: int = 0
    folded: Entry | None = None

    def over(self, now_s: float) -> bool:
        """Whether it has ended with nothing left to tell."""
        return self.folded is None and now_s - self.started_s >= self.length_s


@dataclass(slots=True)
class _Repo:
    filled_s: float
    lines: float = float(BURST)
    windows: dict[_Kind, _Window] = field(default_factory=dict)


class Flood:
    """What was let through and what is counted. `now_s` is monotonic and never goes back."""

    def __init__(self) -> None:
        self._repos: dict[str, _Repo] = {}

    @property
    def counting(self) -> bool:
        """Whether something has been counted that no line tells yet."""
        return any(window.folded for repo in self._repos.values() for window in repo.windows.values())

    def admit(self, entry: Entry, now_s: float) -> bool:
        """Whether the entry gets a line of its own; else it has been counted."""
        repo = self._repos.setdefault(entry.repo.guid if entry.repo else "", _Repo(now_s))
        repo.lines = min(float(BURST), repo.lines + (now_s - repo.filled_s) * REFILL_PER_S)
        repo.filled_s = now_s
        kind: _Kind = (entry.actor.uid, entry.rules, entry.subject)
        if kind not in repo.windows or repo.windows[kind].over(now_s):
            repo.windows = {each: window for each, window in repo.windows.items() if not window.over(now_s)}
            if kind not in repo.windows and len(repo.windows) >= KINDS_PER_REPO:
                kind = None
        window = repo.windows.setdefault(kind, _Window(now_s))
        if window.folded is None and window.passed < EACH and repo.lines >= 1 and kind is not None:
            window.passed += 1
            repo.lines -= 1
            return True
        window.folded = _fold(window.folded, entry)
        return False

    def due(self, now_s: float, *, everything: bool = False) -> tuple[Entry, ...]:
        """The lines that tell what was counted in the windows that have ended, or in all."""
        told: list[Entry] = []
        for guid, repo in list(self._repos.items()):
            for kind, window in list(repo.windows.items()):
                passed_s = now_s - window.started_s
                if passed_s < window.length_s and not everything:
                    continue
                if window.folded is None:
                    del repo.windows[kind]
                    continue
                told.append(_summary(window.folded, passed_s))
                longer_s = min(2 * window.length_s, LONGEST_WINDOW_S)
                repo.windows[kind] = _Window(now_s, longer_s, EACH)
            if not repo.windows and now_s - repo.filled_s >= BURST / REFILL_PER_S:
                del self._repos[guid]
        return tuple(told)


def _fold(folded: Entry | None, entry: Entry) -> Entry:
    """Both as one: what they have in common stays, rules are joined, the latest time and words are kept."""
    if folded is None:
        return entry
    return replace(
        entry,
        actor=entry.actor if entry.actor.uid == folded.actor.uid else replace(entry.actor, uid=-1, gid=-1),
        subject=entry.subject if entry.subject == folded.subject else "",
        rules=tuple(dict.fromkeys((*folded.rules, *entry.rules))),
        count=folded.count + entry.count,
    )


def _summary(folded: Entry, passed_s: float) -> Entry:
    kind = "like this" if folded.subject else "of several kinds"
    words = f"{folded.count} more {kind} within {passed_s:.0f} s, the last one: {folded.detail}"
    return replace(folded, actor=replace(folded.actor, pid=-1), detail=words)
