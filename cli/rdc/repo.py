"""`rdc repo`: making, showing, renaming, forking and deleting repos."""

import os
import sys
from typing import TYPE_CHECKING

import click

from base.errors import UsageError
from cli.app import Lazy, LazyGroup, layout, output_format, output_option, root_option
from cli.rdc.complete import complete_repo
from cli.rdc.wait import wait_until_served
from cli.render import Row, colour_wanted, columns, emit, render_record, render_rows, say

if TYPE_CHECKING:
    from base.layout import Layout
    from gate.core.repo import RepoConfig
    from machine import deletion
    from machine.core.engine_info import Contents

_LIST = columns("name", "guid", "managed", "trust", "socket")
_LIST_KEYS = ("name", "guid", "socket", "upstream", "managed", "cdi_spec_dir", "trust")

repo = LazyGroup(
    name="repo",
    help="Make, show, rename, fork and delete repos, and grant them devices.",
    lazy={"gpu": Lazy("cli.rdc.gpu:gpu", "Grant devices to repos, take them away, list what is granted.")},
)


@repo.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--upstream",
    metavar="unix://SOCK",
    help="Put the gate before this existing daemon instead of giving the repo one of its own.",
)
@click.option(
    "--bind-root",
    "bind_roots",
    metavar="DIR",
    multiple=True,
    help="Let containers bind this host directory and what is below it. May be repeated.",
)
@click.option("--group", metavar="GROUP", help="Let this group use the repo's socket.")
@click.option(
    "--trust",
    type=click.Choice(["owner", "stranger"]),
    default="owner",
    show_default=True,
    help="Whether the repo's work is your own or somebody else's.",
)
@click.option(
    "--stop-holders",
    is_flag=True,
    help="With --upstream: let the gate stop the containers that hold hardware there now.",
)
@output_option
@root_option
def create(  # noqa: PLR0917 - one per option, passed by name
    name: str,
    upstream: str | None,
    bind_roots: tuple[str, ...],
    group: str | None,
    trust: str,
    stop_holders: bool,
) -> None:
    """Make the repo NAME: a Docker socket of its own, with no device behind it.

    The repo gets a Docker daemon of its own, or with --upstream a gate before a daemon that exists. Its users
    work with the socket that is printed: export DOCKER_HOST=unix://SOCKET. What the repo may do beyond the
    strict default stands in etc/rediacc/repos/NAME.yaml.
    """
    from gate.core.repo import Trust  # noqa: PLC0415 - see cli.app.LazyGroup
    from machine import repos  # noqa: PLC0415

    if stop_holders and upstream is None:
        raise UsageError("--stop-holders is about the daemon of --upstream", hint="leave it out")
    files = layout()
    new = repos.NewRepo(
        name=name,
        upstream=upstream,
        bind_roots=bind_roots,
        group=group,
        trust=Trust(trust),
        stop_holders=stop_holders,
    )
    config = repos.create(files, new)
    wait_until_served(files, config)
    say(f"made repo {config.name}; its users work with: {_export(files, config)}")
    emit(render_record(repos.describe(files, config), output_format()))


@repo.command("list")
@output_option
@root_option
def list_() -> None:
    """List the repos of this machine."""
    from gate.repos import RepoFiles  # noqa: PLC0415
    from machine.repos import describe_briefly  # noqa: PLC0415

    files = layout()
    listing = RepoFiles(files).list()
    rows: list[Row] = [describe_briefly(files, config) for config in listing.repos]
    for problem in listing.problems.values():
        say(f"left out: {problem.message}")
    if not rows:
        say(f"there are no repos below {files.root}; 'rdc repo create NAME' makes one")
    emit(render_rows(rows, _LIST, output_format(), keys=_LIST_KEYS, colour=colour_wanted()))


@repo.command()
@click.argument("name", metavar="REPO", shell_complete=complete_repo)
@output_option
@root_option
def show(name: str) -> None:
    """Show one repo: where its socket is, what is behind it, and whether both answer.

    REPO is a name, optionally as NAME@MACHINE, or a GUID.
    """
    from machine import repos  # noqa: PLC0415

    files = layout()
    emit(render_record(repos.describe(files, repos.find(files, name)), output_format()))


@repo.command()
@click.argument("name", metavar="REPO", shell_complete=complete_repo)
@click.argument("new", metavar="NEW")
@output_option
@root_option
def rename(name: str, new: str) -> None:
    """Give the repo REPO the name NEW.

    Everything else stays: GUID, socket, grants, containers that run, connections. Lines that the audit log
    has keep the old name.
    """
    from base.clock import SystemClock  # noqa: PLC0415
    from machine import renaming, repos  # noqa: PLC0415

    files = layout()
    config = renaming.rename(files, name, new, SystemClock())
    say(f"renamed repo to {config.name}; its socket stays")
    emit(render_record(repos.describe(files, config), output_format()))


@repo.command()
@click.argument("name", metavar="REPO", shell_complete=complete_repo)
@click.argument("new", metavar="NEW")
@click.option(
    "--upstream",
    metavar="managed|unix://SOCK",
    help="Give the new repo a daemon of its own, or put its gate before this existing one. Needed where REPO"
    " has an existing daemon, which the two cannot share.",
)
@click.option(
    "--stop-holders",
    is_flag=True,
    help="With --upstream: let the gate stop the containers that hold hardware there now.",
)
@output_option
@root_option
def fork(name: str, new: str, upstream: str | None, stop_holders: bool) -> None:
    """Make the repo NEW with the configuration of REPO.

    Trust, group, accepted preconditions and the whole policy are copied, bind roots included: both repos then
    reach the same host directories. Grants, containers, images and volumes are not.
    """
    from machine import repos  # noqa: PLC0415

    if stop_holders and not (upstream or "").startswith("unix://"):
        raise UsageError("--stop-holders is about the daemon of --upstream", hint="leave it out")
    files = layout()
    config = repos.fork(files, name, new, upstream=upstream, stop_holders=stop_holders)
    wait_until_served(files, config)
    roots = config.policy.bind_roots
    if roots:
        say(f"both repos may bind {', '.join(roots)}")
    say(f"made repo {config.name} without grants; its users work with: {_export(files, config)}")
    emit(render_record(repos.describe(files, config), output_format()))


@repo.command()
@click.argument("name", metavar="REPO", shell_complete=complete_repo)
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
@root_option
@output_option
def delete(name: str, yes: bool) -> None:
    """Delete a repo: its grants, and if its daemon is its own, every container, image and volume in it.

    REPO may be one whose file is broken, and the GUID of one whose deletion was interrupted.
    """
    from base.clock import SystemClock  # noqa: PLC0415
    from machine import deletion  # noqa: PLC0415

    files, clock = layout(), SystemClock()
    doom = deletion.doomed(files, name)
    for line in (*_limits(doom), *_losses(deletion.loss(files, doom, clock))):
        say(line)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"deleting repo '{doom.name}' needs a yes", hint="add --yes when you are sure")
        if not click.confirm(f"Delete repo {doom.name}?", err=True):
            say("nothing was deleted")
            click.get_current_context().exit(1)
    deletion.delete(files, doom, clock, os.environ)
    say(f"deleted repo {doom.name}")
    guid = None if doom.config is None else doom.config.guid
    emit(render_record({"name": doom.name, "guid": guid, "deleted": True}, output_format()))


def _export(files: "Layout", config: "RepoConfig") -> str:
    return f"export DOCKER_HOST=unix://{files.repo(config.guid).socket}"


def _limits(doom: "deletion.Doomed") -> list[str]:
    """What is odd about this one, for whoever is asked."""
    lines = [f"its file cannot be used: {doom.problem}"] if doom.problem else []
    if doom.twins:
        lines.append(f"only its file goes: its GUID is that of {', '.join(doom.twins)} too")
    elif doom.config is None:
        lines.append(
            "only its file goes: no GUID can be read in it; what there is under one is deleted with"
            " 'rdc repo delete GUID'"
        )
    return lines


def _losses(loss: "deletion.Loss") -> list[str]:
    lines = []
    if loss.data is not None:
        lines.append(f"will be lost: everything in its daemon{_counted(loss.contents)}: {loss.data}")
    if loss.grants:
        lines.append(f"will be freed: {', '.join(str(grant.device) for grant in loss.grants)}")
    if loss.holders:
        ends = "are stopped" if loss.data is not None else "keep their devices until they end"
        lines.append(f"running containers with a device: {', '.join(loss.holders)}; they {ends}")
    return lines


def _counted(contents: "Contents | None") -> str:
    if contents is None:
        return ", which does not answer, volumes included"
    volumes = ", volumes included" if contents.volumes is None else f", volumes: {contents.volumes}"
    size = "" if contents.size_bytes is None else f", {contents.size_bytes / 1e6:,.1f} MB in all"
    return f" (containers: {contents.containers}, images: {contents.images}{volumes}{size})"
