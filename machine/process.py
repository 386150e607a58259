"""Processes that may or may not be our children, held by pidfd: a reused PID is never mistaken for them.

Source: pidfd_open(2), proc(5).
"""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from base.errors import UnreachableError

_PROC = Path("/proc")


class Process:
    """A live process; owns a pidfd until `close`."""

    def __init__(self, pid: int, descriptor: int, child: "subprocess.Popen[bytes] | None") -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._child = child

    @classmethod
    def spawn(cls, command: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path) -> "Process":
        """Start a program in a session of its own, its output appended to `log`.

        A session of its own, so that Ctrl-C in our terminal reaches us alone and we stop it in order.

        Raises:
            UnreachableError: it cannot be started.
        """
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            child = subprocess.Popen(
                command, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=descriptor,
                stderr=descriptor, start_new_session=True,
            )  # fmt: skip
        except OSError as exc:
            raise UnreachableError(f"cannot start {command[0]}: {exc.strerror}") from exc
        finally:
            os.close(descriptor)
        return cls(child.pid, os.pidfd_open(child.pid), child)

    @classmethod
    def adopt(cls, pid: int, expected: Sequence[str]) -> "Process | None":
        """Take hold of a running process; None when none with this PID has the `expected` command line.

        How the program was called does not count, only its arguments. They are read after the pidfd is open:
        whatever they say is said of the process that we hold.
        """
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, OverflowError, ValueError):
            return None
        process = cls(pid, descriptor, None)
        if process.alive and command_line(pid)[1:] == tuple(expected)[1:]:
            return process
        process.close()
        return None

    @property
    def descriptor(self) -> int:
        """The pidfd; readable once the process has ended."""
        return self._descriptor

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return not self.wait(0)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended, at most `timeout_s`; whether it has. A child of ours is reaped."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        ended = bool(poll.poll(timeout_s * 1000))
        if ended and self._child is not None:
            self._child.wait()
        return ended

    @property
    def exit_words(self) -> str:
        """How it ended, for people."""
        code = self._child.returncode if self._child is not None else None
        if code is None:
            return "ended"
        return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def close(self) -> None:
        """Let go of it; it keeps running."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def command_line(pid: int) -> tuple[str, ...]:
    """The process's arguments; empty when it is gone, a zombie or a kernel thread."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in raw.split(b"\0")[:-1])


def processes() -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every process's PID and arguments, as of now."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            yield int(entry.name), command_line(int(entry.name))


def children(pid: int) -> tuple[int, ...]:
    """The PIDs of a process's children, those of all its threads."""
    found: list[int] = []
    try:
        for task in (_PROC / str(pid) / "task").iterdir():
            found.extend(int(each) for each in (task / "children").read_text().split())
    except OSError:
        return tuple(found)
    return tuple(found)


def kill_now(pid: int) -> None:
    """SIGKILL, if it still exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
