import dataclasses

import pytest

from base.errors import MalformedError
from gate.core.repo import RepoConfig, RepoName, RepoPolicy
from gate.core.repo_text import edited

REPO = RepoConfig(
    name=RepoName("gpu-a"),
    guid="6af613b6-569c-4c22-9c37-2ed93f31d3af",
    policy=RepoPolicy(bind_roots=("/srv",)),
)
BY_HAND = b"""\
# ours
schema_version: 1
guid: 6af613b6-569c-4c22-9c37-2ed93f31d3af   # never changes
policy: {bind_roots: [/srv]}  # data
name: 'gpu-a' # theirs
"""


def renamed(name: str) -> RepoConfig:
    return dataclasses.replace(REPO, name=RepoName(name))


def test_comments_and_order_are_kept() -> None:
    text = edited(BY_HAND, renamed("gpu-b"))
    assert text == BY_HAND.replace(b"'gpu-a'", b"gpu-b")


@pytest.mark.parametrize("name", ["123", "true", "0x1", "1_0", "null", "a.b", "1.5", "x" * 63])
def test_any_name_stays_a_name(name: str) -> None:
    assert RepoConfig.parse(edited(REPO.to_yaml(), renamed(name))).name == name


def test_a_file_that_is_being_renamed_has_two_names() -> None:
    text = edited(BY_HAND, REPO, renaming_to=RepoName("gpu-b"))
    assert RepoConfig.parse(text, file_name="gpu-a") == REPO
    assert RepoConfig.parse(text, file_name="gpu-b") == renamed("gpu-b")
    with pytest.raises(MalformedError):
        RepoConfig.parse(text, file_name="gpu-c")
    assert edited(text, renamed("gpu-b")) == BY_HAND.replace(b"'gpu-a'", b"gpu-b")
    again = edited(text, REPO, renaming_to=RepoName("gpu-c"))
    assert RepoConfig.parse(again, file_name="gpu-c") == renamed("gpu-c")
    assert b"gpu-b" not in again


@pytest.mark.parametrize(
    "raw",
    [
        b'{schema_version: 1, name: gpu-a, guid: "6af613b6-569c-4c22-9c37-2ed93f31d3af"}',
        BY_HAND.replace(b"name:", b"? name\n:"),
        b"\xff",
        b"",
        b"name: gpu-a\nname: gpu-a\n",
        BY_HAND + b"socket_group: docker\n",
    ],
)
def test_what_cannot_be_edited_is_written_anew(raw: bytes) -> None:
    assert RepoConfig.parse(edited(raw, renamed("gpu-b"))) == renamed("gpu-b")


def test_a_fork_has_its_own_guid_and_upstream() -> None:
    fork = dataclasses.replace(REPO, name=RepoName("b"), guid="a" * 8, upstream="/run/b.sock")
    for raw in (BY_HAND, REPO.to_yaml()):
        assert RepoConfig.parse(edited(raw, fork)) == fork
    assert b"# never changes" not in edited(BY_HAND, fork)
    assert b"# never changes" in edited(BY_HAND, dataclasses.replace(fork, upstream=REPO.upstream))
