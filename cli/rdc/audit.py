"""`rdc audit`: reading the audit log, and checking that nobody changed it."""

import json
import time

import click

from base.clock import SystemClock
from base.errors import DamagedError
from cli.app import layout, output_format, output_option, root_option
from cli.rdc.complete import complete_repo
from cli.render import Format, Row, colour_wanted, columns, emit, render_record, render_rows, say
from gate.audit import AuditLog
from gate.core.audit_chain import Record, Tip, format_instant
from gate.core.audit_verify import Report
from machine.journal import operator

_SHOWN = columns("seq", "at", "event", "who", "repo", "subject", "rules", "count", "detail")
_POLL_S = 0.5


class BrokenChainError(DamagedError):
    """The audit log is not what was written."""

    code = "audit-broken"


@click.group()
def audit() -> None:
    """Read the audit log, and check that nobody changed it.

    One line for each request that was refused, each grant and revoke, each forced stop and each repo that was
    made, renamed or deleted: who asked, for which repo, and by which rule. Each line holds the hash of the
    one before.
    """


@audit.command()
@click.option(
    "-n", "--lines", "count", type=click.IntRange(min=0), default=20, show_default=True, metavar="N",
    help="How many of the last lines to show.",
)  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines as they come, until Ctrl-C.")
@click.option(
    "--repo", metavar="REPO", shell_complete=complete_repo,
    help="Only lines about this repo, by the name it had then or its GUID.",
)  # fmt: skip
@output_option
@root_option
def tail(count: int, follow: bool, repo: str | None) -> None:
    """Show the last lines, oldest first.

    With -f, -o json prints one object a line.
    """
    log = _log()

    def wanted(record: Record) -> bool:
        about = record.entry.repo
        return repo is None or (about is not None and repo in (about.name, about.guid))

    # What is shown begins behind a point that is known, so that -f neither repeats nor leaves out a line.
    newest = log.last(1)
    records = [each for each in log.last(count, wanted) if newest and each.seq <= newest[-1].seq]
    if not follow:
        if not records:
            say("the audit log has no such lines" if newest else "there is no audit log yet")
        rows = [_row(each) for each in records]
        emit(render_rows(rows, _SHOWN, output_format(), colour=colour_wanted()))
        return
    _print(records, heading=True)
    seen = newest[-1].seq if newest else 0
    while True:
        time.sleep(_POLL_S)
        for record in log.after(seen):
            seen = record.seq
            if wanted(record):
                _print([record], heading=False)


@audit.command()
@click.option(
    "--expect", metavar="SEQ:HASH",
    help="An end of the chain that was written down earlier; only this finds lines cut off at the end.",
)  # fmt: skip
@output_option
@root_option
def verify(expect: str | None) -> None:
    """Check the chain over all files of the log, oldest first.

    A line or file that was changed, dropped, added or moved is found and its place named: exit code 1. The
    end of the chain is printed as 'tip', SEQ:HASH. Keep it on another machine and give it back with --expect.
    """
    anchor = None if expect is None else Tip.parse(expect)
    report = _log().verify(anchor)
    emit(render_record(_summary(report), output_format()))
    if report.recovered:
        say(f"note: {report.recovered} times the log was repaired after a crash ('audit.recovered')")
    if report.torn_bytes:
        say(f"note: {report.torn_bytes} bytes of an unfinished line at its end; the next line repairs that")
    if not report.whole:
        first = report.problems[0]
        place = f"{first.file}, line {first.line}" if first.line else first.file or "the log"
        more = f" (and {len(report.problems) - 1} more)" if len(report.problems) > 1 else ""
        raise BrokenChainError(
            f"the audit log is broken: {place}: {first.message}{more}",
            hint="keep a copy of the files as they are; what follows that place may be genuine or not",
        )


def _log() -> AuditLog:
    return AuditLog(layout(), SystemClock(), operator())


def _print(records: list[Record], *, heading: bool) -> None:
    """Lines of a stream: JSON objects one a line, else a table without a new heading each time."""
    rows = [_row(each) for each in records]
    if output_format() is Format.JSON:
        emit("".join(json.dumps(row) + "\n" for row in rows))
        return
    text = render_rows(rows, _SHOWN, output_format(), colour=colour_wanted())
    has_heading = output_format() in (Format.TABLE, Format.CSV)
    emit(text if heading or not has_heading else text.partition("\n")[2])


def _row(record: Record) -> Row:
    entry = record.entry
    actor = entry.actor
    return {
        "seq": record.seq,
        "at": format_instant(entry.at),
        "event": entry.event,
        "who": actor.sudo_user or actor.login or ("" if actor.uid < 0 else f"uid {actor.uid}"),
        "repo": None if entry.repo is None else entry.repo.name,
        "guid": None if entry.repo is None else entry.repo.guid,
        "subject": entry.subject,
        "rules": list(entry.rules),
        "count": entry.count,
        "detail": entry.detail,
        "uid": actor.uid,
        "gid": actor.gid,
        "pid": actor.pid,
        "login": actor.login,
        "sudo_user": actor.sudo_user,
        "data": dict(entry.data),
        "prev": record.prev,
    }


def _summary(report: Report) -> Row:
    return {
        "whole": report.whole,
        "files": report.files,
        "lines": report.lines,
        "tip": str(report.tip),
        "recovered": report.recovered,
        "problems": [
            {"code": str(each.code), "file": each.file, "line": each.line, "message": each.message}
            for each in report.problems
        ],
    }
