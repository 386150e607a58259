"""`renet up`: gate and managed daemons in the foreground."""

import asyncio
import functools
import os
import signal

import click
import uvloop

from base.clock import SystemClock
from base.files import make_directory
from base.layout import Layout
from base.notify import notify
from base.run_lock import held
from cli.app import layout, root_option
from cli.render import say
from cli.renet.log import log_to_stderr
from gate.repos import RepoFiles
from gate.serve import serve
from machine.managed import ManagedDaemons
from machine.repos import up_lock
from machine.up import Supervisor
from machine.up import up as run_up


@click.command()
@root_option
def up() -> None:
    """Run the gate and the repos' own daemons in the foreground, without systemd.

    Follows repos as they are made and deleted. Says on stderr when everything is up (and tells systemd, if
    that started it). SIGTERM or Ctrl-C stops the gate, then the daemons and their containers.
    """
    files = layout()
    log_to_stderr()
    make_directory(files.run_dir)
    with held(up_lock(files), f"'renet up' on root {files.root}"):
        uvloop.run(_up(files))
    say("renet up: stopped")


async def _up(files: Layout) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stop_said = loop.create_task(_say_stopping(stop))
    daemons = ManagedDaemons(files, os.environ)
    supervisor = Supervisor(list_daemons=daemons, fingerprint=daemons.fingerprint, clock=SystemClock())
    gate_up = asyncio.Event()
    ready = loop.create_task(_say_ready(files, supervisor, gate_up))
    try:
        await run_up(supervisor, functools.partial(serve, files, on_ready=gate_up.set), stop)
    finally:
        ready.cancel()
        stop_said.cancel()


async def _say_ready(files: Layout, supervisor: Supervisor, gate_up: asyncio.Event) -> None:
    await gate_up.wait()
    await supervisor.settled.wait()
    daemons = f"{supervisor.running} daemons of their own"
    say(f"renet up: ready on root {files.root}, {len(RepoFiles(files).names())} repos, {daemons}")
    notify("READY=1")


async def _say_stopping(stop: asyncio.Event) -> None:
    await stop.wait()
    notify("STOPPING=1")
    say("renet up: stopping the gate, then the daemons")
