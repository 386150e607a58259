"""A bind reaches what was judged: on managed daemons, whatever somebody with a writable bind root does."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine import IMAGE, Docker, Engine, newest
from tests.system import swaps
from tests.system.swaps import NETWORK, SECRET, Place
from tests.system.up_machine import UpMachine

REFUSED = "error while creating mount source path"


@dataclass(frozen=True, kw_only=True)
class Managed:
    """A repo with a bind root on a daemon of its own: by the gate, and raw, as root reaches it."""

    machine: UpMachine
    gate: Docker
    raw: Docker
    place: Place
    other: dict[str, str]

    @property
    def pid(self) -> int:
        return int((Path(self.raw.host.removeprefix("unix://")).parent / "dockerd.pid").read_text())


@pytest.fixture(scope="module")
def managed(each_engine: Engine) -> Iterator[Managed]:
    base = Path(tempfile.mkdtemp(prefix="u", dir="/tmp"))
    machine = UpMachine(base, each_engine)
    try:
        place = Place.make(base)
        machine.start()
        repo, other = machine.create("a", "--bind-root", str(place.root)), machine.create("b")
        gate = machine.docker(repo)
        raw = Docker(f"unix://{Path(repo['socket']).parent}/private/dockerd.sock", newest())
        raw.ok("import", str(newest().image_tar), IMAGE)
        yield Managed(machine=machine, gate=gate, raw=raw, place=place, other=other)
    finally:
        machine.close()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def fresh(managed: Managed) -> Iterator[Managed]:
    yield managed
    names = managed.raw.ok("ps", "-aq").split()
    if names:
        managed.raw.ok("rm", "-f", *names)
    for entry in managed.place.root.iterdir():
        entry.unlink() if entry.is_symlink() or entry.is_file() else shutil.rmtree(entry)


def test_a_swap_before_a_start_reaches_nothing(fresh: Managed) -> None:
    assert REFUSED in swaps.between_create_and_start(fresh.place, fresh.gate, fresh.raw)
    told = fresh.gate.run("start", "created").stderr
    assert "[bind-root]" in told


def test_a_restart_policy_brings_nothing_back(fresh: Managed) -> None:
    assert REFUSED in swaps.by_restart_policy(fresh.place, fresh.gate)


def test_no_directory_is_made_by_way_of_a_link(fresh: Managed) -> None:
    assert "file exists" in swaps.by_missing_source(fresh.place, fresh.raw)
    assert fresh.place.reached == []


def test_copies_lead_nowhere(fresh: Managed) -> None:
    assert REFUSED in swaps.by_copying_out(fresh.place, fresh.gate, fresh.raw)
    assert REFUSED in swaps.by_copying_in(fresh.place, fresh.gate, fresh.raw)
    assert fresh.place.reached == []


def test_racing_reaches_nothing(fresh: Managed) -> None:
    started, seen = swaps.by_racing(fresh.place, fresh.gate, fresh.raw, times=50)
    assert seen == 0
    assert started > 0


def test_containers_follow_the_links_in_their_binds(fresh: Managed) -> None:
    path = fresh.place.folder("app")
    (path / "real").mkdir()
    (path / "real/file").write_text("found")
    (path / "near").symlink_to("real")
    (path / "far").symlink_to("/m/near/file")
    (path / "out").symlink_to(fresh.place.outside)
    for mode in ("rw", "ro"):
        run = ("run", "--rm", *NETWORK, "-v", f"{path}:/m:{mode}", IMAGE)
        assert fresh.gate.ok(*run, "cat", "/m/near/file", "/m/far") == "foundfound"
        assert SECRET not in fresh.gate.run(*run, "cat", "/m/out/secret").stdout
    mount = ("--mount", f"type=bind,source={path},target=/m", "-v", "kept:/v", IMAGE)
    assert fresh.gate.ok("run", "--rm", *NETWORK, *mount, "cat", "/m/far") == "found"


def test_a_source_that_is_a_link_means_what_it_leads_to_when_it_is_made(fresh: Managed) -> None:
    for name in ("r1", "r2"):
        (fresh.place.folder(name) / "name").write_text(name)
    now = fresh.place.root / "now"
    now.symlink_to("r1")
    fresh.gate.ok("create", "--name", "linked", *NETWORK, "-v", f"{now}:/m", IMAGE, "cat", "/m/name")
    now.unlink()
    now.symlink_to("r2")
    assert fresh.gate.ok("start", "-a", "linked") == "r1"
    assert fresh.gate.ok("run", "--rm", *NETWORK, "-v", f"{now}:/m", IMAGE, "cat", "/m/name") == "r2"


def test_a_folder_that_became_a_link_is_told(fresh: Managed) -> None:
    path, other = fresh.place.folder("one"), fresh.place.folder("two")
    fresh.gate.ok("create", "--name", "linked", *NETWORK, "-v", f"{path}:/m", IMAGE, "true")
    shutil.rmtree(path)
    path.symlink_to(other)
    assert "[bind-link]" in fresh.gate.run("start", "linked").stderr


def test_compose_makes_nothing_anew_the_second_time(fresh: Managed, tmp_path: Path) -> None:
    fresh.place.folder("data")
    (fresh.place.root / "link").symlink_to("data")
    (tmp_path / "compose.yaml").write_text(
        f"services: {{a: {{image: {IMAGE}, command: sleep 1000, network_mode: none, stop_signal: KILL,"
        f" volumes: ['{fresh.place.root}/link:/m']}}}}\n"
    )
    ids = []
    for _ in range(2):
        fresh.gate.ok("compose", "up", "-d", cwd=tmp_path)
        ids.append(fresh.gate.ok("ps", "-q", "--no-trunc"))
    fresh.gate.ok("compose", "down", cwd=tmp_path)
    assert ids[0] == ids[1] != ""


def test_a_bind_root_can_be_removed_and_made_anew(fresh: Managed) -> None:
    root, pid = fresh.place.root, fresh.pid
    run = ("run", "--rm", *NETWORK, "-v", f"{root}:/m", IMAGE, "true")
    shutil.rmtree(root)
    root.mkdir()
    first = fresh.gate.run(*run)
    assert first.returncode == 0 or "[bind-unconfined]" in first.stderr
    fresh.machine.until(lambda: fresh.gate.run(*run).returncode == 0, 20)
    assert REFUSED in swaps.between_create_and_start(fresh.place, fresh.gate, fresh.raw)
    assert fresh.pid == pid


def test_a_new_bind_root_counts_without_a_restart(fresh: Managed) -> None:
    new = Place.make(fresh.place.root.parent / "more")
    file = fresh.machine.root / "etc/rediacc/repos/a.yaml"
    before, pid = file.read_text(), fresh.pid
    file.write_text(before.replace(str(fresh.place.root), f"{fresh.place.root}\n  - {new.root}"))
    run = ("run", "--rm", *NETWORK, "-v", f"{new.root}:/m", IMAGE, "true")
    try:
        fresh.machine.until(lambda: fresh.gate.run(*run).returncode == 0, 20)
        assert REFUSED in swaps.between_create_and_start(new, fresh.gate, fresh.raw)
        assert fresh.pid == pid
    finally:
        file.write_text(before)
        shutil.rmtree(new.root.parent)


def test_the_daemon_sees_no_other_repo(fresh: Managed) -> None:
    """Even by a path that nobody judged, the sockets and directories of others are not there."""
    run_dir, state_dir = fresh.machine.root / "run/rediacc", fresh.machine.root / "var/lib/rediacc"
    own = Path(fresh.raw.host.removeprefix("unix://")).parents[1].name
    assert Path(fresh.other["socket"]).is_socket()
    for hidden, kept in ((run_dir, [own, "x"]), (state_dir, ["repos"]), (state_dir / "repos", [own])):
        shown = fresh.raw.ok("run", "--rm", *NETWORK, "-v", f"{hidden}:/m", IMAGE, "ls", "/m")
        assert sorted(shown.split()) == sorted(kept)


def test_without_the_confinement_every_one_of_them_succeeds(each_daemon: object, tmp_path: Path) -> None:
    docker, place = each_daemon.docker, Place.make(tmp_path)  # type: ignore[attr-defined]
    assert SECRET in swaps.between_create_and_start(place, docker, docker)
    assert SECRET in swaps.by_restart_policy(place, docker)
    assert SECRET in swaps.by_copying_out(place, docker, docker)
    swaps.by_missing_source(place, docker)
    swaps.by_copying_in(place, docker, docker)
    assert place.reached == ["copied", "made"]
    assert swaps.by_racing(place, docker, docker, times=20)[1] > 0
