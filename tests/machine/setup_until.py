"""Runs setup again and again, each time killed one step later (arguments: root, host, PATH).

A step is anything that changes the file system; Python tells of it before it happens (PEP 578). Every run is
a process of its own. After each, setup runs once more to its end. Prints how many steps there were.
"""

import hashlib
import os
import shutil
import signal
import sys
from pathlib import Path

from base.layout import Layout
from machine.provision import set_up
from tests.fake_clock import FakeClock

CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.chmod", "os.utime", "os.truncate"})
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def contents(root: Path) -> dict[str, str]:
    """What lies below the root, but for the lock, which names the process."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "setup.lock"
    }


def run(layout: Layout, environ: dict[str, str], steps: int | None) -> bool:
    """Whether setup came to its end before its last allowed step."""
    child = os.fork()
    if child == 0:
        left = [steps]

        def count(event: str, arguments: tuple[object, ...]) -> None:
            changes = event in CHANGES or (event == "open" and bool(int(str(arguments[2])) & WRITING))
            if left[0] is not None and changes:
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

        sys.addaudithook(count)
        set_up(layout, FakeClock(), environ)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def main(root: Path, host: Path, path: str) -> None:
    """Stop at each step, first on an empty root, then on one that holds older files."""
    environ = {**os.environ, "PATH": path}
    layout = Layout(root, host)
    expected: dict[str, str] = {}
    for older in (False, True):
        steps, done = 0, False
        while not done:
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            if older:
                layout.cdi_spec_dir.mkdir(parents=True)
                layout.inventory.parent.mkdir(parents=True)
                for each in (layout.cdi_spec_dir / "nvidia.yaml", layout.inventory):
                    each.write_text("older\n")
            done = run(layout, environ, steps)
            assert run(layout, environ, None)
            found = contents(root)
            expected = expected or found
            assert found == expected, (steps, found, expected)
            steps += 1
        print(steps)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
