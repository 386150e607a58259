"""Running other programs for their output: with a time limit, no input, and their last words on failure."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from base.errors import RdcError

_LAST_WORDS_CHARS = 400


class ProgramError(RdcError):
    """A program failed; the message ends with its last words."""

    code = "program"


def output_of(command: Sequence[str | Path], environ: Mapping[str, str], *, timeout_s: float) -> bytes:
    """What the program prints on stdout.

    Raises:
        ProgramError: it cannot be started, does not end in time, or ends with another code than 0.
    """
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            [str(word) for word in command],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise ProgramError(f"{name} has not ended within {timeout_s:g} s") from exc
    except OSError as exc:
        raise ProgramError(f"cannot run {command[0]}: {exc.strerror}") from exc
    if done.returncode != 0:
        words = " ".join(done.stderr.decode("utf-8", "replace").split())[-_LAST_WORDS_CHARS:]
        how = (
            f"was ended by signal {-done.returncode}"
            if done.returncode < 0
            else f"ended with {done.returncode}"
        )
        raise ProgramError(f"{name} {how}" + (f": {words}" if words else ""))
    return done.stdout
