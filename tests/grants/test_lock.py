"""The lock between processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from base.errors import AccessError
from grants.lock import LockTimeoutError, locked

HOLD = """
import sys, time
from pathlib import Path
from grants.lock import locked
with locked(Path(sys.argv[1]), timeout_s=5):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_holder_frees_the_lock_and_is_named_while_it_lives(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert holder.stdout is not None
    with holder, holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockTimeoutError) as caught, locked(path, timeout_s=0):
            pass
        assert f"process {holder.pid} " in caught.value.message
        os.kill(holder.pid, signal.SIGKILL)
        with locked(path, timeout_s=5):
            pass


def test_it_is_freed_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "x.lock", timeout_s=0):
        raise ZeroDivisionError
    with locked(tmp_path / "x.lock", timeout_s=0):
        pass


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AccessError), locked(tmp_path / "x.lock", timeout_s=0):
        pass
    assert not (tmp_path / "elsewhere").exists()
