"""`renet gate`: the gate alone."""

import asyncio
import functools
import signal

import click
import uvloop

from base.layout import Layout
from base.notify import notify
from cli.app import layout, root_option
from cli.render import say
from cli.renet.log import log_to_stderr
from gate.serve import serve as serve_gate


@click.group()
def gate() -> None:
    """Run the gate that stands before the repos' Docker daemons."""


@gate.command()
@root_option
def serve() -> None:
    """Serve every repo of this machine, each on its own socket, until SIGTERM or Ctrl-C.

    Repos, grants and specs are followed without a restart. The repos' own daemons are not started: 'renet
    up' does.
    """
    files = layout()
    log_to_stderr()
    uvloop.run(_serve(files))


async def _serve(files: Layout) -> None:
    loop = asyncio.get_running_loop()
    gate_task = loop.create_task(serve_gate(files, on_ready=functools.partial(_ready, files)))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gate_task.cancel)
    await asyncio.wait((gate_task,))
    notify("STOPPING=1")
    if not gate_task.cancelled():
        gate_task.result()


def _ready(files: Layout) -> None:
    say(f"renet gate: serving root {files.root}")
    notify("READY=1")
