"""`renet`, what runs on the machine."""

import sys

from cli.app import Lazy, LazyGroup, root_option, run, version_option

HELP = """Run the gate and the repos' Docker daemons on this machine, and look at its CDI specs.

\b
  renet setup           find the devices, write their CDI specs and the inventory
  renet up              gate and daemons in the foreground, without systemd
  renet gate serve      the gate alone
  renet cdi list        the devices that can be granted
"""

renet = version_option(
    root_option(
        LazyGroup(
            name="renet",
            help=HELP,
            lazy={
                "setup": Lazy(
                    "cli.renet.provision:setup", "Find the devices, write their specs and the inventory."
                ),
                "up": Lazy("cli.renet.up:up", "Run the gate and the managed daemons in the foreground."),
                "gate": Lazy("cli.renet.gate:gate", "Run the gate."),
                "cdi": Lazy("cli.renet.cdi:cdi", "Check and list CDI specs."),
                "completion": Lazy(
                    "cli.completion:completion", "Print the script that completes commands in a shell."
                ),
            },
        )
    )
)


def main() -> None:
    """Entry point; ends the process with the command's exit code."""
    sys.exit(run(renet, "renet"))
