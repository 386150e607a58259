"""Logs of long-running commands: one event a line on stderr."""

import logging
import os
import sys

from cli.render import printable

LEVEL_VARIABLE = "RDC_LOG"


class _Line(logging.Formatter):
    """One line an event; control characters in values are escaped, so that none can be forged."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record).replace("\n", " | "))


def log_to_stderr() -> None:
    """Send every logger's events to stderr; `RDC_LOG=debug` or `warning` changes how many."""
    handler = logging.StreamHandler(sys.stderr)
    # systemd's journal has times of its own.
    stamp = "" if os.environ.get("JOURNAL_STREAM") else "%(asctime)s "
    handler.setFormatter(_Line(f"{stamp}%(levelname)s %(message)s"))
    level = logging.getLevelNamesMapping().get(os.environ.get(LEVEL_VARIABLE, "info").upper(), logging.INFO)
    logging.basicConfig(level=level, handlers=[handler], force=True)
