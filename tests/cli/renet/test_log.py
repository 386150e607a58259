import logging
from collections.abc import Iterator

import pytest

from cli.renet.log import log_to_stderr


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_one_line_an_event_that_nobody_can_forge(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    logging.getLogger("x").warning("event name=%s", "a\n2026 INFO forged\x1b[31m")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "WARNING event name=a" in lines[0]
    assert "\x1b" not in lines[0]


@pytest.mark.parametrize(
    ("level", "shown"), [("debug", 2), ("info", 1), ("warning", 0), ("nonsense", 1), (None, 1)]
)
def test_how_much_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, level: str | None, shown: int
) -> None:
    monkeypatch.delenv("RDC_LOG", raising=False)
    if level is not None:
        monkeypatch.setenv("RDC_LOG", level)
    log_to_stderr()
    logging.getLogger("x").debug("detail")
    logging.getLogger("x").info("event")
    assert len(capsys.readouterr().err.splitlines()) == shown


def test_the_journal_has_times_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    log_to_stderr()
    logging.getLogger("x").info("event")
    assert capsys.readouterr().err == "INFO event\n"
