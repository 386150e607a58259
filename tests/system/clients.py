"""What the tests with real clients share: the same action on the raw socket and through the gate."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable

from tests.engine import Docker
from tests.system.conftest import Gated

RUN = ("run", "--rm", "--network", "none")


Result = tuple[int, str, str]


def both(gated: Gated, action: Callable[[Docker], object]) -> object:
    """What `action` gives on the raw socket, after checking that the gate gives the same."""
    raw = action(gated.raw)
    through_gate = action(gated.gate)
    assert through_gate == raw
    return raw


def plain(*arguments: str, stdin: str | None = None) -> Callable[[Docker], Result]:
    def action(cli: Docker) -> Result:
        done = cli.run(*arguments, stdin=stdin)
        return done.returncode, done.stdout, done.stderr

    return action


def in_terminal(*arguments: str, keys: bytes = b"") -> Callable[[Docker], tuple[int, str]]:
    """The client on a terminal of its own; what the terminal shows, and the exit status."""

    def action(cli: Docker) -> tuple[int, str]:
        terminal, side = pty.openpty()
        client = subprocess.Popen(
            cli.command(*arguments), env={**cli.env(), "TERM": "dumb"}, stdin=side, stdout=side, stderr=side,
            start_new_session=True,
        )  # fmt: skip
        os.close(side)
        shown = b""
        pending = keys
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ready, _, _ = select.select([terminal], [], [], 0.2)
            if ready:
                try:
                    part = os.read(terminal, 4096)
                except OSError:
                    break
                shown += part
                if pending and b"ready" in shown:
                    os.write(terminal, pending)
                    pending = b""
            elif client.poll() is not None:
                break
        os.close(terminal)
        return client.wait(10), shown.decode().replace("\r", "")

    return action
