"""`rdc repo gpu`: granting devices to repos and taking them away."""

import getpass
import os
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta

import click

from base.clock import SystemClock
from base.errors import NotFoundError, UsageError
from cli.app import layout, output_format, output_option, root_option
from cli.rdc.complete import complete_device, complete_repo
from cli.render import Row, colour_wanted, columns, emit, render_rows, say
from gate.core.repo import RepoConfig
from grants.core.machine import GrantStatus, drifted
from grants.core.model import Grant, GrantRequest, Isolation, RepoGuid, Sharing, format_instant
from machine.core.durations import parse_duration
from machine.core.engine_info import Holder
from machine.core.refs import RepoRef
from machine.gpu import Gpu, Granted, Regranted, Revoked
from machine.journal import UnrecordedError
from machine.readiness import Readiness, State
from machine.repos import find

_GRANTED = columns("repo", "device", "sharing", "isolation", "vram_mb", "expires_at", "resolvable")
_REVOKED = columns("repo", "device", "sharing")
_REGRANTED = columns("repo", "device", "sharing", "expires_at", "change")
_LISTED = columns("repo", "device", "sharing", "isolation", "vram_mb", "expires_at", "status", "note")
_REASON = columns("reason")
_ROW_KEYS = (
    "repo", "guid", "device", "sharing", "isolation", "vram_mb", "expires_at", "granted_at", "granted_by",
    "note",
)  # fmt: skip
_LIST_KEYS = (*_ROW_KEYS, "status", "reason")
_REVOKED_KEYS = (*_ROW_KEYS, "holders", "stopped")


@click.group()
def gpu() -> None:
    """Grant devices to repos, take them away, list what is granted.

    A grant names exactly one device: nvidia.com/gpu=all admits nvidia.com/gpu=all and not nvidia.com/gpu=0.
    It is in force from the next request, without restarting anything. 'renet cdi list' shows the names of
    this machine.
    """


@gpu.command()
@click.argument("repo", metavar="REPO", shell_complete=complete_repo)
@click.option(
    "--device",
    "devices",
    metavar="NAME",
    multiple=True,
    required=True,
    shell_complete=complete_device,
    help="A qualified CDI name, such as nvidia.com/gpu=0. May be repeated: all are granted, or none.",
)
@click.option(
    "--exclusive", is_flag=True, help="Refuse the device, under any of its names, to every other repo."
)
@click.option(
    "--isolation", type=click.Choice([str(each) for each in Isolation]), help="How its use must be fenced."
)
@click.option("--vram-mb", type=click.IntRange(min=1), metavar="N", help="Cap of the card's memory in MiB.")
@click.option("--expires", metavar="TIME", help="End the grant after this long: 8h, 90m, 7d, 1h30m.")
@click.option("--note", metavar="TEXT", default="", help="A word for whoever lists the grants.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, change nothing.")
@output_option
@root_option
def grant(  # noqa: PLR0917 - one per option, passed by name
    repo: str,
    devices: tuple[str, ...],
    exclusive: bool,
    isolation: str | None,
    vram_mb: int | None,
    expires: str | None,
    note: str,
    dry_run: bool,
) -> None:
    """Let REPO use devices.

    Returns when the repo's daemon can resolve them, or says on stderr why it cannot yet. Granting what the
    repo holds already replaces the grant with its new terms.
    """
    files, clock = layout(), SystemClock()
    config = find(files, repo)
    expires_at = None if expires is None else _after(clock.now(), parse_duration(expires))
    requests = [
        GrantRequest(
            repo=RepoGuid(config.guid),
            device=device,
            sharing=Sharing.EXCLUSIVE if exclusive else Sharing.SHARED,
            isolation=None if isolation is None else Isolation(isolation),
            vram_mb=vram_mb,
            expires_at=expires_at,
            granted_by=_operator(),
            note=note,
        )
        for device in devices
    ]
    result = Gpu(files, clock).grant(config, requests, dry_run=dry_run)
    _tell_granted(config, result, dry_run=dry_run)
    resolvable = None if result.readiness is None else result.readiness.resolvable
    rows = [{**_row(config.name, each), "resolvable": resolvable} for each in result.outcome.change.granted]
    emit(render_rows(rows, _GRANTED, output_format(), colour=colour_wanted()))


@gpu.command()
@click.argument("repo", metavar="REPO", shell_complete=complete_repo)
@click.option(
    "--device",
    "devices",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_device,
    help="A device that was granted. May be repeated: all are revoked, or none.",
)
@click.option("--all", "every", is_flag=True, help="Every device of the repo.")
@click.option("--stop", is_flag=True, help="Also stop the containers that hold one of the devices.")
@output_option
@root_option
def revoke(repo: str, devices: tuple[str, ...], every: bool, stop: bool) -> None:
    """Take devices away from REPO.

    Nothing can be started with them from now on. Containers that run keep what they have: they are reported,
    and stopped with --stop.
    """
    if every == bool(devices):
        raise UsageError(
            "say which devices to revoke", hint="either --device NAME, once or more often, or --all"
        )
    files = layout()
    gpus = Gpu(files, SystemClock())
    guid, config = _holder(gpus, repo)
    result = gpus.revoke(guid, None if every else devices, config, stop=stop)
    name = repo if config is None else config.name
    if not result.outcome.change.revoked:
        say(f"repo {name} holds no device")
    for each in result.outcome.change.revoked:
        say(f"revoked {each.device} from repo {name}")
    _tell_holders(result)
    rows = [{**_row(name, each), **_holding(each, result)} for each in result.outcome.change.revoked]
    emit(render_rows(rows, _REVOKED, output_format(), keys=_REVOKED_KEYS, colour=colour_wanted()))
    if result.unrecorded:
        raise UnrecordedError(result.unrecorded)


@gpu.command()
@click.argument("repo", metavar="[REPO]", required=False, shell_complete=complete_repo)
@click.option(
    "--device",
    "devices",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_device,
    help="Only this device. May be repeated: all are renewed, or none.",
)
@click.option("--all", "every", is_flag=True, help="Of every repo, when REPO is left out.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
@output_option
@root_option
def regrant(repo: str | None, devices: tuple[str, ...], every: bool, dry_run: bool, yes: bool) -> None:
    """Renew grants whose names have come to mean other hardware, knowingly.

    After a reboot, a lost card or a MIG change a grant is refused as drifted when its name means another
    card than it did. This shows what each of them meant and means, asks, and grants what it means now on the
    terms that the grant had. Cards that changed places between repos are renewed together with --all.
    """
    if every == (repo is not None):
        raise UsageError("say whose grants to renew", hint="either REPO or --all")
    files = layout()
    gpus = Gpu(files, SystemClock())
    config = None if repo is None else find(files, repo)
    shown = gpus.regrant(config, devices, granted_by=_operator(), confirmed=None)
    change = shown.outcome.change
    rows = [
        {**_row(gpus.name_of(new.repo), new), "change": drifted(old.pin, new.pin)}
        for old, new in zip(change.replaced, change.granted, strict=True)
    ]
    rows.sort(key=lambda row: (str(row["repo"]), str(row["device"])))
    for row in rows:
        say(f"repo {row['repo']}: {row['device']}: {row['change']}")
    for warning in change.warnings:
        say(f"note: {warning}")
    if not change.granted:
        say("no grant has drifted" if config is None else f"no such grant of repo {config.name} has drifted")
    elif not dry_run:
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("renewing grants needs a yes", hint="add --yes when you are sure")
            if not click.confirm("Grant what they mean now?", err=True):
                say("nothing was changed")
                click.get_current_context().exit(1)
        _tell_regranted(gpus, gpus.regrant(config, devices, granted_by=_operator(), confirmed=change.granted))
    emit(render_rows(rows, _REGRANTED, output_format(), keys=(*_ROW_KEYS, "change"), colour=colour_wanted()))


@gpu.command("list")
@click.argument("repo", metavar="[REPO]", required=False, shell_complete=complete_repo)
@output_option
@root_option
def list_(repo: str | None) -> None:
    """List the grants of this machine, or of one REPO, with what has become of them.

    \b
    live          containers may use the device
    expired       its time is over
    drifted       the name now means another card than when it was granted;
                  'rdc repo gpu regrant' renews it if that is right
    unresolvable  no spec of this machine defines it any more
    """  # noqa: D301 - click reads the backspace as "do not wrap"
    files = layout()
    gpus = Gpu(files, SystemClock())
    config = None if repo is None else find(files, repo)
    rows = [
        _listed(gpus.name_of(each.repo) if config is None else config.name, each, status)
        for each, status in gpus.list(config)
    ]
    rows.sort(key=lambda row: (str(row["repo"]), str(row["device"])))
    if not rows:
        say("no device is granted" if config is None else f"repo {config.name} holds no device")
    shown = (*_LISTED, *_REASON) if any(row["reason"] for row in rows) else _LISTED
    emit(render_rows(rows, shown, output_format(), keys=_LIST_KEYS, colour=colour_wanted()))


def _holder(gpus: Gpu, reference: str) -> tuple[RepoGuid, RepoConfig | None]:
    """Whose grants: a repo's, or those that a repo left which was removed by hand."""
    try:
        config = find(layout(), reference)
    except NotFoundError:
        ref = RepoRef.parse(reference)
        if not gpus.grants_of(RepoGuid(ref.name)):
            raise
        return RepoGuid(ref.name), None
    return RepoGuid(config.guid), config


def _row(repo: str, grant: Grant) -> dict[str, str | int | None]:
    return {
        "repo": repo,
        "guid": str(grant.repo),
        "device": str(grant.device),
        "sharing": str(grant.sharing),
        "isolation": None if grant.isolation is None else str(grant.isolation),
        "vram_mb": grant.vram_mb,
        "expires_at": None if grant.expires_at is None else format_instant(grant.expires_at),
        "granted_at": format_instant(grant.granted_at),
        "granted_by": grant.granted_by,
        "note": grant.note,
    }


def _holding(grant: Grant, result: Revoked) -> Row:
    """The containers that still run with the device, null when nobody knows, and those that were stopped."""

    def told(holders: Sequence[Holder]) -> list[Row]:
        return [{"id": each.id, "name": each.name} for each in holders if str(grant.device) in each.devices]

    holders = None if result.holders is None else told(result.holders)
    return {"holders": holders, "stopped": told(result.stopped)}


def _listed(repo: str, grant: Grant, status: GrantStatus) -> Row:
    return {**_row(repo, grant), "status": str(status.state), "reason": status.reason}


def _tell_granted(config: RepoConfig, result: Granted, *, dry_run: bool) -> None:
    change = result.outcome.change
    for each in change.granted:
        verb = "would grant" if dry_run else "granted"
        say(f"{verb} {each.device} to repo {config.name} ({each.sharing})")
    for warning in change.warnings:
        say(f"note: {warning}")
    if result.readiness is not None:
        _tell_ready(result.readiness)


def _tell_ready(ready: Readiness) -> None:
    if ready.state is State.UNREACHABLE:
        say(f"recorded; the repo's daemon cannot be asked: {ready.detail}")
    elif ready.resolvable is False:
        say(f"recorded, but containers cannot start with it yet: {ready.detail}")
    elif ready.detail:
        say(f"note: {ready.detail}")
    if ready.remedy:
        say(f"  {ready.remedy}")


def _tell_regranted(gpus: Gpu, result: Regranted) -> None:
    for guid, ready in (result.readiness or {}).items():
        say(f"renewed the grants of repo {gpus.name_of(guid)}")
        _tell_ready(ready)
    for guid, holders in result.holders.items():
        for each in holders:
            of = f"{each.name} ({each.id[:12]}) of repo {gpus.name_of(guid)}"
            say(f"container {of} keeps what it was started with until it is restarted")


def _tell_holders(result: Revoked) -> None:
    for each in result.stopped:
        say(f"stopped container {each.name} ({each.id[:12]})")
    for each in result.holders or ():
        say(f"container {each.name} ({each.id[:12]}) still runs with {', '.join(each.devices)}")
    if result.holders:
        say("  the repo's users end it with 'docker stop'; --stop would have done it here")
    if result.holders is None:
        say(f"whether containers still hold a device is not known: {result.unknown}")


def _after(now: datetime, duration: timedelta) -> datetime:
    return now + duration


def _operator() -> str:
    """Who grants, for the record: the person behind sudo where there is one."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
