from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gate.core.audit_chain import Actor, AuditedRepo, Entry
from gate.core.audit_flood import (
    BURST,
    EACH,
    KINDS_PER_REPO,
    LONGEST_WINDOW_S,
    REFILL_PER_S,
    WINDOW_S,
    Flood,
)
from gate.core.denial import Rule
from tests.gate.test_audit_chain import DENIED


def kind(number: int, repo: str = "a") -> Entry:
    return replace(DENIED, subject=f"route{number}", repo=AuditedRepo(repo, repo))


def test_few_of_a_kind_are_lines_of_their_own() -> None:
    flood = Flood()
    assert all(flood.admit(DENIED, 0) for _ in range(EACH))
    assert not flood.counting
    assert not flood.admit(DENIED, 0)
    assert flood.counting
    assert flood.admit(kind(1), 0), "others are not affected"
    assert flood.admit(replace(DENIED, actor=replace(DENIED.actor, uid=1)), 0)
    assert flood.admit(replace(DENIED, rules=("privileged",)), 0)


def test_more_are_counted_and_told_when_the_window_ends() -> None:
    flood = Flood()
    for number in range(EACH + 5):
        flood.admit(replace(DENIED, detail=str(number)), 0)
    assert flood.due(WINDOW_S - 1) == ()
    (told,) = flood.due(WINDOW_S)
    assert told.count == 5
    assert (told.rules, told.subject, told.repo) == (DENIED.rules, DENIED.subject, DENIED.repo)
    assert (told.actor.uid, told.actor.pid) == (DENIED.actor.uid, -1)
    assert str(EACH + 4) in told.detail
    assert not flood.counting


def test_a_flood_that_goes_on_is_told_less_often() -> None:
    flood, now, told = Flood(), 0.0, []
    while now < 3600:
        flood.admit(DENIED, now)
        told += [(now, each.count) for each in flood.due(now)]
        now += 1.0
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(told)]
    assert max(pauses) == LONGEST_WINDOW_S
    assert pauses == sorted(pauses)
    told += [(now, each.count) for each in flood.due(now, everything=True)]
    assert sum(count for _, count in told) + EACH == 3600


def test_after_a_pause_a_kind_has_lines_of_its_own_again() -> None:
    flood = Flood()
    for _ in range(EACH):
        flood.admit(DENIED, 0)
    assert flood.admit(DENIED, WINDOW_S)
    assert not flood.counting


def test_a_repo_with_too_many_kinds_gets_one_line_for_the_rest() -> None:
    flood = Flood()
    entries = [replace(kind(number), rules=(list(Rule)[number % 50],)) for number in range(1000)]
    assert sum(flood.admit(each, 0) for each in entries) == KINDS_PER_REPO
    (told,) = flood.due(WINDOW_S)
    assert told.count == 1000 - KINDS_PER_REPO
    assert told.subject == ""
    assert set(told.rules) == {rule.value for rule in list(Rule)[:50]}
    assert told.actor.uid == DENIED.actor.uid
    mixed = Flood()
    for number in range(KINDS_PER_REPO + 2):
        mixed.admit(replace(kind(number), actor=Actor(uid=number, gid=number, pid=number)), 0)
    assert mixed.due(WINDOW_S)[0].actor == Actor(uid=-1, gid=-1, pid=-1)
    assert flood.admit(kind(1, "b"), 0), "another repo has a budget of its own"


def test_a_repos_budget_is_bounded_and_fills_up_again() -> None:
    flood, lines, hours = Flood(), 0, 2
    for second in range(hours * 3600):
        lines += sum(flood.admit(kind(each % 40), second) for each in range(second * 7, second * 7 + 7))
        lines += len(flood.due(second))
    summaries = hours * 3600 / LONGEST_WINDOW_S * (KINDS_PER_REPO + 1) * 2
    assert lines <= BURST + hours * 3600 * REFILL_PER_S + summaries
    assert flood.due(10**6, everything=True)
    flood.due(2 * 10**6)
    assert flood.admit(kind(99), 2 * 10**6 + 1)


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from("abc"), st.floats(0, 120), st.booleans()), max_size=300
    )
)
def test_nothing_is_left_uncounted(steps: list[tuple[int, str, float, bool]]) -> None:
    flood, now, told = Flood(), 0.0, 0
    for number, repo, passed_s, look in steps:
        now += passed_s
        told += flood.admit(kind(number, repo), now)
        if look:
            told += sum(each.count for each in flood.due(now))
    told += sum(each.count for each in flood.due(now, everything=True))
    assert told == len(steps)
    assert not flood.counting
