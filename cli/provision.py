"""What `renet setup` and `rdc machine setup` do and print."""

import os

import click

from base.clock import SystemClock
from base.layout import Layout
from cli.render import Format, Row, columns, emit, render_record, render_rows, say
from machine.provision import set_up

_COLUMNS = columns("file", "kind", "action")
_PROGRAM_VARIABLES = frozenset({"PYTHONPATH", "PYTHONHOME"})


def provision(files: Layout, form: Format) -> None:
    """Set the machine up and tell; ends the command with 1 when some devices cannot be granted."""
    environ = {name: value for name, value in os.environ.items() if name not in _PROGRAM_VARIABLES}
    report = set_up(files, SystemClock(), environ)
    rows: list[Row] = [
        {"file": str(each.path), "kind": each.kind, "action": each.action.value} for each in report.files
    ]
    problems: list[Row] = [
        {"message": each.message, "hint": each.hint, "fatal": each.fatal} for each in report.problems
    ]
    if form is Format.TABLE or form is Format.CSV:
        emit(render_rows(rows, _COLUMNS, form))
        for each in report.problems:
            hint = f"\n  {each.hint}" if each.hint else ""
            say(f"{'error' if each.fatal else 'note'}: {each.message}{hint}")
    else:
        emit(render_record({"files": rows, "problems": problems}, form))
    if any(each.fatal for each in report.problems):
        click.get_current_context().exit(1)
