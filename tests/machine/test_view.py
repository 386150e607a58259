"""What a managed daemon sees of the machine, made for real with shells in the place of daemons."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from base.errors import RefusedError, UnreachableError
from machine.view import View, guards, launch, sees, unguarded, widen, wrap_runc
from tests.engine import Engine

NOBODY = 65534
NOTHING = View(guards=(), own=(), hidden=())


@pytest.fixture(autouse=True)
def _root(engine28: Engine) -> None:
    """Where a daemon can run, its view can be made."""


def view(**changes: tuple[Path, ...]) -> View:
    told = {name: tuple(str(path) for path in changes.get(name, ())) for name in ("guards", "own", "hidden")}
    return View(**told)


def shell(seen: View, script: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    command = launch(seen, ("/bin/sh", "-c", script))
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "root/dir").mkdir(parents=True)
    (tmp_path / "root/dir/file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("secret")
    (tmp_path / "root/near").symlink_to("dir")
    (tmp_path / "root/out").symlink_to(tmp_path / "outside")
    return tmp_path


def test_below_a_guard_no_link_is_followed(place: Path) -> None:
    root = place / "root"
    script = f"cat {root}/dir/file; cat {root}/near/file; cat {root}/out/file; ls -d {root}/near"
    done = shell(view(guards=(root,)), script)
    assert done.stdout == f"inside{root}/near\n"
    assert done.stderr.count("symbolic links") == 2
    assert shell(NOTHING, script).stdout == f"insideinsidesecret{root}/near\n"


def test_below_a_guard_no_device_opens(place: Path) -> None:
    os.mknod(place / "root/zero", 0o666 | 0o020000, os.makedev(1, 5))
    read = f"head -c 1 {place}/root/zero | wc -c"
    assert shell(NOTHING, read).stdout.strip() == "1"
    assert shell(view(guards=(place / "root",)), read).stdout.strip() == "0"


def test_mounts_below_a_guard_are_guarded_too(place: Path) -> None:
    inner = place / "root/dir"
    subprocess.run(["mount", "--bind", place / "root", inner], check=True)
    try:
        done = shell(view(guards=(place / "root",)), f"cat {inner}/near/file; cat {inner}/dir/file")
    finally:
        subprocess.run(["umount", inner], check=True)
    assert "symbolic links" in done.stderr
    assert not (inner / "near").exists()


def test_a_guard_is_never_put_where_a_link_leads(place: Path) -> None:
    done = shell(view(guards=(place / "root/out",)), "echo started")
    assert done.returncode == 1
    assert f"{place}/root/out" in done.stderr
    assert done.stdout == ""


def test_what_is_hidden_is_empty_but_for_what_is_its_own(place: Path, short_dir: Path) -> None:
    (place / "run/a").mkdir(parents=True)
    (place / "run/b").mkdir()
    (place / "run/a/mine").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "s"))
        listener.listen()
        seen = view(hidden=(place / "run", short_dir / "s", place / "no"), own=(place / "run/a",))
        done = shell(seen, f"ls {place}/run {place}/run/a; test -S {short_dir}/s || echo no socket")
    assert done.stdout == f"{place}/run:\na\n\n{place}/run/a:\nmine\nno socket\n"


def test_what_is_its_own_keeps_its_links_below_a_guard(place: Path) -> None:
    (place / "root/state").mkdir()
    (place / "root/state/real").write_text("layer")
    (place / "root/state/link").symlink_to("real")
    seen = view(guards=(place / "root",), own=(place / "root/state",))
    done = shell(seen, f"cd {place}/root; cat state/link; cat near/file; touch state/new")
    assert done.stdout == "layer"
    assert (place / "root/state/new").exists()


def test_it_stands_where_it_was_started_and_keeps_its_arguments(place: Path) -> None:
    own = place / "run/a"
    own.mkdir(parents=True)
    (own / "here").touch()
    seen = view(hidden=(place / "run",), own=(own,))
    done = shell(seen, "ls; ls ..; tr '\\0' ' ' </proc/$$/cmdline", cwd=own)
    assert done.stdout.startswith("here\na\n/bin/sh -c ls;")


def test_nothing_of_it_is_left_on_the_machine(place: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    shell(view(guards=(place / "root",), hidden=(place / "outside",)), "true")
    assert Path("/proc/self/mountinfo").read_text() == before


@pytest.fixture
def running(place: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with a view, its own directory `run/a`, and no guards."""
    (place / "run/a").mkdir(parents=True)
    seen = view(hidden=(place / "run",), own=(place / "run/a",))
    with subprocess.Popen(launch(seen, ("/bin/sleep", "1000"))) as process:
        try:
            deadline = time.monotonic() + 10
            while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def test_a_running_one_gets_more_guards(place: Path, running: "subprocess.Popen[bytes]") -> None:
    pid, wanted = running.pid, (str(place / "root"),)
    assert unguarded(pid, wanted) == wanted
    widen(pid, view(guards=(place / "root",)))
    assert unguarded(pid, wanted) == ()
    read = ["nsenter", "-m", "-t", str(pid), "--", "cat", f"{place}/root/near/file"]
    assert "symbolic links" in subprocess.run(read, capture_output=True, text=True, check=False).stderr
    with pytest.raises(UnreachableError):
        widen(pid, view(guards=(place / "root/out",)))


def test_whose_view_it_is_shows(place: Path, running: "subprocess.Popen[bytes]") -> None:
    assert sees(running.pid, view(own=(place / "run/a",)))
    assert not sees(running.pid, view(own=(place / "run/a", place / "run/b")))
    assert not sees(os.getpid(), view(own=(place / "run/a",)))
    running.kill()
    running.wait()
    assert not sees(running.pid, view(own=(place / "run/a",)))
    with pytest.raises(UnreachableError):
        unguarded(running.pid, (str(place),))


def test_a_root_that_only_root_can_exchange_guards_itself(place: Path) -> None:
    assert guards([str(place / "root")]) == (str(place / "root"),)
    assert guards([str(place / "root/out"), str(place / "root/dir")]) == (
        str(place / "outside"),
        str(place / "root/dir"),
    )


def test_one_guard_is_enough_for_all_below(place: Path) -> None:
    (place / "rooted").mkdir()
    roots = [str(place / each) for each in ("root/dir", "root", "root/near", "rooted")]
    assert guards(roots) == (str(place / "root"), str(place / "rooted"))


def test_what_somebody_else_can_exchange_is_guarded_from_above(place: Path) -> None:
    home = place / "home/alice"
    (home / "work/deep").mkdir(parents=True)
    os.chown(home, NOBODY, NOBODY)
    assert guards([str(home / "work/deep")]) == (str(home),)
    assert guards([str(home)]) == (str(home),)
    os.chown(home, 0, 0)
    assert guards([str(home / "work/deep")]) == (str(home / "work/deep"),)
    for mode in (0o775, 0o757):
        home.chmod(mode)
        assert guards([str(home / "work/deep")]) == (str(home),)
    home.chmod(0o1777)
    assert guards([str(home / "work/deep")]) == (str(home / "work/deep"),)
    assert guards([str(home / "not yet/deep")]) == (str(home),)
    os.chown(home / "work", NOBODY, NOBODY)
    assert guards([str(home / "work/deep")]) == (str(home),)


def test_a_swapped_root_leads_nowhere(place: Path) -> None:
    home = place / "home"
    (home / "work").mkdir(parents=True)
    os.chown(home, NOBODY, NOBODY)
    swap = f"mv {home}/work {home}/was; ln -s {place}/outside {home}/work; cat {home}/work/file"
    (guard,) = guards([str(home / "work")])
    assert "symbolic links" in shell(view(guards=(Path(guard),)), swap).stderr


def test_what_is_not_there_or_may_not_be_bound_has_no_guard(place: Path) -> None:
    (place / "etc").symlink_to("/etc/docker")
    (place / "all").symlink_to("/")
    assert guards([str(place / "none/at/all"), str(place / "etc"), str(place / "all"), "/"]) == ()


def test_a_machine_that_is_not_roots_has_no_safe_root(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("machine.view._only_root_exchanges", lambda parent, child: False)
    with pytest.raises(RefusedError):
        guards([str(place)])


def test_runc_is_itself_for_all_but_new_containers(tmp_path: Path) -> None:
    runc, folder = tmp_path / "it's runc", tmp_path / "bin"
    folder.mkdir()
    runc.write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    runc.chmod(0o755)
    wrap_runc(folder, runc)
    for words in (["--version"], ["--root", "/r", "delete", "--force", "id"], ["exec", "a  b", "'"]):
        done = subprocess.run([folder / "runc", *words], capture_output=True, text=True, check=True, env={})
        assert done.stdout == "".join(f"[{word}]" for word in words)
    told = subprocess.run([folder / "runc", "create", "id"], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "config.json" in told.stderr
