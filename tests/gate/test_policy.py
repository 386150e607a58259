"""What decisions have in common."""

import pytest

from gate.core.policy import ContainerLookup, Forward, PathLookup, VolumeLookup, missing


def test_missing_is_what_has_no_answer_each_once() -> None:
    one, two, three = ContainerLookup("a"), VolumeLookup("a"), PathLookup("a")
    assert missing([one, two, one, three], {two: None}) == (one, three)
    assert missing([one], {one: None}) == ()


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a?x=1", "-a", "a%2fb", "a b"])
def test_names_that_cannot_exist_are_never_asked_about(name: str) -> None:
    assert missing([ContainerLookup(name), VolumeLookup(name)], {}) == ()


def test_lookups_of_different_kinds_are_different_questions() -> None:
    assert len({ContainerLookup("a"), VolumeLookup("a"), PathLookup("a")}) == 3


def test_a_forward_without_a_body_has_none() -> None:
    forward = Forward(target=b"/x")
    assert (forward.body, forward.content_type, forward.response_warnings, forward.devices) == (
        None,
        None,
        (),
        (),
    )
