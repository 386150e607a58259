"""Waiting for the gate to serve a repo that was just made."""

import time

from base.clock import SystemClock
from base.errors import RdcError
from base.layout import Layout
from cli.render import say
from gate.core.repo import RepoConfig
from machine.docker import Daemon
from machine.readiness import judge
from machine.repos import keeps_daemons, upstream_socket

TIMEOUT_S = 60.0
_POLL_S = 0.05


def wait_until_served(layout: Layout, config: RepoConfig) -> None:
    """Return when the repo's socket can be used; otherwise say on stderr what is missing.

    Waits only for what is on its way: a gate that runs, and a managed daemon that `renet up` starts.
    """
    if not config.managed:
        _say_what_is_missing(layout, config)
    if not Daemon(layout.gate_socket).accepts():
        say(f"the gate does not run yet: {_how_to_start(layout, config)}")
        return
    gate, daemon = Daemon(layout.repo(config.guid).socket), Daemon(upstream_socket(layout, config))
    if config.managed and not keeps_daemons(layout):
        say(f"the repo's own daemon does not run yet: {_how_to_start(layout, config)}")
    coming = config.managed and keeps_daemons(layout)
    clock = SystemClock()
    deadline = clock.monotonic_s() + TIMEOUT_S
    while not (gate.accepts() and (not coming or (daemon.answers() and gate.answers()))):
        if clock.monotonic_s() > deadline:
            say(f"the repo's socket does not answer after {TIMEOUT_S:.0f} s; see what 'renet up' says")
            return
        time.sleep(_POLL_S)
    if not config.managed and not daemon.answers():
        say(f"no daemon answers at {config.upstream} yet; the gate waits for it")


def _say_what_is_missing(layout: Layout, config: RepoConfig) -> None:
    """What an existing daemon lacks to be as safe and as useful as one of our own."""
    daemon = Daemon(upstream_socket(layout, config))
    try:
        for each in daemon.unmet_preconditions():
            say(f"note: {each.detail}\n  {each.remedy}")
        found = judge(daemon.info(), layout.repo(config.guid).cdi_spec_dir, ())
    except RdcError:
        return  # told below, or the gate waits for it
    if found.detail:
        say(f"note: {found.detail}\n  {found.remedy}")


def _how_to_start(layout: Layout, config: RepoConfig) -> str:
    root = "" if str(layout.root) == "/" else f" --root {layout.root}"
    serve = "" if config.managed else f", or the gate alone with 'renet{root} gate serve'"
    return f"start it with 'renet{root} up'{serve}"
