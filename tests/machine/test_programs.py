from pathlib import Path

import pytest

from machine.programs import ProgramError, output_of
from tests.machine.tools import script


def test_output(tmp_path: Path) -> None:
    program = script(tmp_path / "p", 'printf "%s" "$1 $WORD"; echo words >&2')
    assert output_of((program, "a b"), {"WORD": "w"}, timeout_s=10) == b"a b w"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo one >&2; echo two >&2; exit 3", "p ended with 3: one two"),
        ("exit 1", "p ended with 1"),
        ("kill -9 $$", "p was ended by signal 9"),
        ("exec sleep 30", "p has not ended within 0.5 s"),
    ],
)
def test_failures(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ProgramError) as caught:
        output_of((script(tmp_path / "p", text),), {"PATH": "/usr/bin:/bin"}, timeout_s=0.5)
    assert caught.value.message == words


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="cannot run"):
        output_of((tmp_path / "p",), {}, timeout_s=1)
