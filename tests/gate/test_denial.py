"""Denials: every rule knows a way forward, and a message is one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core.denial import MOST_TOLD, REMEDIES, Denial, Rule, broken, malformed, refuse, show, show_options


def test_every_rule_has_a_remedy() -> None:
    assert set(REMEDIES) == set(Rule)


@pytest.mark.parametrize("rule", list(Rule))
def test_remedies_are_words_for_people(rule: Rule) -> None:
    assert len(REMEDIES[rule]) > 10
    assert "\n" not in REMEDIES[rule]
    assert REMEDIES[rule] == REMEDIES[rule].strip()


def test_message_shape() -> None:
    denial = refuse([broken(Rule.RUNTIME, "a", "b"), broken(Rule.OOM, "c", "d"), broken(Rule.OOM, "c", "d")])
    assert denial.status == 403
    assert denial.message() == "a [runtime]: b; c [oom]: d"
    assert denial.codes() == ("runtime", "oom")


def test_a_message_stays_readable_however_much_is_broken() -> None:
    denial = refuse([broken(Rule.CAPABILITY, str(number), "x") for number in range(MOST_TOLD)], "gpu-a")
    assert denial.message().endswith(f"; {MOST_TOLD - 1} [capability]: x")
    more = [broken(Rule.CAPABILITY, str(number)) for number in range(MOST_TOLD)]
    denial = refuse([*more, broken(Rule.PRIVILEGED, "y"), broken(Rule.OOM, "z")], "gpu-a")
    assert denial.message().endswith("; and 2 more")
    assert denial.codes() == ("capability", "privileged", "oom"), "the log still names every rule"


def test_the_repos_own_file_is_named() -> None:
    assert "repos/gpu-a.yaml" in refuse([broken(Rule.CAPABILITY, "x")], "gpu-a").message()


def test_malformed_is_400() -> None:
    assert malformed("x") == Denial(status=400, broken=(broken(Rule.MALFORMED, "x"),))


@given(st.text(max_size=400))
def test_shown_text_is_short_printable_and_on_one_line(text: str) -> None:
    shown = show(text)
    assert shown
    assert len(shown) <= 160
    assert all(char.isprintable() for char in shown)


def test_shown_options() -> None:
    assert show_options({"type": "none", "o": "bind"}) == "type=none, o=bind"
