import subprocess
import sys
from pathlib import Path

import pytest

from base.errors import AccessError, RefusedError
from base.run_lock import held, is_held

HOLDER = """
import sys, pathlib
from base.run_lock import held
with held(pathlib.Path(sys.argv[1]), "a holder"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    with holder, holder.stdin, holder.stdout:
        assert holder.stdout.readline() == "held\n"
        assert is_held(path)
        with pytest.raises(RefusedError) as caught, held(path, "a second one"):
            pass
        assert str(holder.pid) in caught.value.message
        holder.kill()
        holder.wait()
    assert not is_held(path)
    with held(path, "a third one"):
        assert is_held(path)
    assert not is_held(path)


def test_what_cannot_be_a_lock_file_is_told(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "absent")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AccessError), held(link, "it"):
        pass
