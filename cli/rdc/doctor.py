"""`rdc doctor`: what is wrong, and how to mend it."""

import click

from cli.app import layout, output_format, output_option, root_option
from cli.rdc.complete import complete_repo
from cli.render import Format, Row, colour_wanted, columns, emit, render_rows, say

_COLUMNS = columns("repo", "check", "level", "detail", "remedy")


@click.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_repo)
@output_option
@root_option
def doctor(name: str | None) -> None:
    """Say what is wrong with this machine, or with the repo NAME, and how to mend it.

    Looks at the gate, the engine, the repos' sockets, what their daemons must be like before they are served,
    CDI specs, grants, the clock that ends them, room on the disks, and who may write what decides about
    devices. Changes nothing. Ends with 1 when something does not work or is refused, with 0 when there is
    nothing or only warnings.
    """
    from base.clock import SystemClock  # noqa: PLC0415 - see cli.app.LazyGroup
    from machine.core.findings import Level  # noqa: PLC0415
    from machine.doctor import examine  # noqa: PLC0415
    from machine.repos import find  # noqa: PLC0415

    files = layout()
    found = examine(files, SystemClock(), None if name is None else find(files, name))
    rows: list[Row] = [
        {
            "repo": each.repo,
            "check": each.check,
            "level": each.level.value,
            "detail": each.detail,
            "remedy": each.remedy,
        }
        for each in found
    ]
    emit(render_rows(rows, _COLUMNS, output_format(), colour=colour_wanted()))
    if not rows and output_format() is Format.TABLE:
        say("nothing is wrong")
    if any(each.level is Level.ERROR for each in found):
        click.get_current_context().exit(1)
