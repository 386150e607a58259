"""Completions that a shell asks for: repo names and device names of this machine.

A completion must never fail or print: whatever goes wrong, there is nothing to suggest.
"""

import click

from base.errors import RdcError
from base.layout import Layout
from cli.app import root_of


def complete_repo(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of repos that begin with what is written."""
    from gate.repos import RepoFiles  # noqa: PLC0415 - see cli.app.LazyGroup

    try:
        names = RepoFiles(_layout(ctx)).names()
    except (RdcError, OSError):
        return []
    return [str(name) for name in names if name.startswith(incomplete)]


def complete_device(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Qualified names of devices that begin with what is written."""
    from cdi.directories import load_catalog  # noqa: PLC0415
    from machine.config import load_machine_config  # noqa: PLC0415

    try:
        catalog = load_catalog(load_machine_config(_layout(ctx)).cdi_spec_dirs)
    except (RdcError, OSError):
        return []
    return [str(name) for name in sorted(catalog.devices) if str(name).startswith(incomplete)]


def _layout(ctx: click.Context) -> Layout:
    return Layout.from_environment(root_of(ctx))
