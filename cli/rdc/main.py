"""`rdc`, the operator's command."""

import sys

from cli.app import Lazy, LazyGroup, root_option, run, version_option

HELP = """Decide which repos of this machine may use which devices.

A repo is a tenant with a Docker daemon of its own behind a gate. It reaches a device only when you grant it
one exact CDI name, such as nvidia.com/gpu=0; its users then write 'docker run --device nvidia.com/gpu=0'.

\b
  rdc machine setup local
  rdc repo create gpu-a
  rdc repo gpu grant gpu-a --device nvidia.com/gpu=0
  rdc repo gpu list

\b
Exit codes: 0 ok, 1 general, 2 usage, 3 refused by a rule, 4 permission,
5 not found, 6 cannot reach the machine or daemon.
"""

rdc = version_option(
    root_option(
        LazyGroup(
            name="rdc",
            help=HELP,
            lazy={
                "machine": Lazy("cli.rdc.machine:machine", "Set machines up, and show what they have."),
                "repo": Lazy("cli.rdc.repo:repo", "Make, show and delete repos, and grant them devices."),
                "audit": Lazy("cli.rdc.audit:audit", "Read the audit log, and check that nobody changed it."),
                "doctor": Lazy("cli.rdc.doctor:doctor", "Say what is wrong, and how to mend it."),
                "completion": Lazy(
                    "cli.completion:completion", "Print the script that completes commands in a shell."
                ),
            },
        )
    )
)


def main() -> None:
    """Entry point; ends the process with the command's exit code."""
    sys.exit(run(rdc, "rdc"))
