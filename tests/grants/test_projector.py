"""The projection on disk."""

import json
import os
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from base.errors import AccessError, RdcError
from cdi.core.catalog import Catalog
from cdi.core.library import Library
from cdi.core.names import QualifiedName
from cdi.directories import load_catalog
from grants.core.machine import GrantState
from grants.core.model import GrantRequest, RepoGuid, Sharing
from grants.lock import LockTimeoutError, locked
from grants.projector import SyncReport, sync_projection
from grants.store import GrantStore
from tests.grants import cards
from tests.grants.cards import NAMES, NOW, A, B

GPU_0, GPU_1 = "nvidia.com/gpu=0", "nvidia.com/gpu=1"
RENDER = "rediacc.io/dri=renderD128"
EVERY = tuple(Library)


class Bench:
    """A machine, its store, and the projections of its repos."""

    def __init__(self, machine: cards.Machine) -> None:
        self.machine = machine
        self.clock = cards.StillClock()
        self.store = GrantStore(self.machine.layout, self.clock)

    def grant(self, repo: RepoGuid, *devices: str, lasts_s: int | None = None) -> None:
        expires_at = None if lasts_s is None else NOW + timedelta(seconds=lasts_s)
        self.store.grant(
            [
                GrantRequest(repo=repo, device=each, granted_by="root", expires_at=expires_at)
                for each in devices
            ],
            load_catalog=self.machine.catalog,
            probe=self.machine.probe,
            repo_names=NAMES,
        )

    def sync(self, repo: RepoGuid = A, libraries: tuple[Library, ...] = EVERY) -> SyncReport:
        return sync_projection(
            self.machine.layout,
            repo,
            load_table=self.store.read,
            load_catalog=self.machine.catalog,
            probe=self.machine.probe,
            clock=self.clock,
            libraries=libraries,
            lock_timeout_s=1,
        )

    def directory(self, repo: RepoGuid = A) -> Path:
        return self.machine.layout.repo(repo).cdi_spec_dir

    def projected(self, repo: RepoGuid = A) -> list[str]:
        """What the repo's daemon can resolve, in each library."""
        found = {tuple(sorted(map(str, self.catalog(repo, each).devices))) for each in Library}
        assert len(found) == 1
        return list(found.pop())

    def catalog(self, repo: RepoGuid = A, library: Library = Library.V1_0_1) -> Catalog:
        catalog = load_catalog([self.directory(repo)], library=library)
        assert not catalog.errors
        return catalog


@pytest.fixture
def bench(machine: cards.Machine) -> Bench:
    return Bench(machine)


def test_exactly_the_live_grants_of_the_repo(bench: Bench) -> None:
    bench.grant(A, GPU_0, RENDER)
    bench.grant(B, GPU_1)
    report = bench.sync()
    bench.sync(B)
    assert bench.projected(A) == [GPU_0, RENDER]
    assert bench.projected(B) == [GPU_1]
    assert [str(each) for each in report.devices] == [GPU_0, RENDER]
    assert (len(report.written), report.removed, report.left_out) == (2, (), ())
    bench.store.revoke(A, [GPU_0], repo_names=NAMES)
    assert len(bench.sync().removed) == 1
    assert bench.projected(A) == [RENDER]


def test_top_level_edits_come_along(bench: Bench) -> None:
    bench.grant(A, GPU_0)
    bench.sync()
    spec = bench.catalog().devices[QualifiedName.parse(GPU_0)].spec
    assert [node.path for node in spec.container_edits.device_nodes] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]


def test_no_grant_is_an_empty_directory(bench: Bench) -> None:
    report = bench.sync()
    assert (report.devices, report.written) == ((), ())
    assert list(bench.directory().iterdir()) == []
    assert stat.S_IMODE(bench.directory().stat().st_mode) == 0o755


def test_what_is_right_is_not_touched(bench: Bench) -> None:
    bench.grant(A, GPU_0)
    bench.sync()
    (path,) = bench.directory().iterdir()
    before = path.stat()
    report = bench.sync()
    assert (report.written, report.removed) == ((), ())
    assert path.stat() == before
    assert stat.S_IMODE(before.st_mode) == 0o644


def test_ended_drifted_and_vanished_grants_are_left_out_and_told(bench: Bench) -> None:
    bench.grant(A, GPU_0)
    bench.grant(A, RENDER)
    bench.grant(A, GPU_1, lasts_s=60)
    bench.clock.forward(seconds=60)
    bench.machine.write(nvidia=cards.nvidia(7, 1), dri=cards.dri(140))
    report = bench.sync()
    assert bench.projected() == []
    assert {str(each.device): each.status.state for each in report.left_out if each.status} == {
        GPU_0: GrantState.DRIFTED,
        GPU_1: GrantState.EXPIRED,
        RENDER: GrantState.UNRESOLVABLE,
    }
    bench.machine.write(nvidia=cards.nvidia(0, 1))
    bench.sync()
    assert bench.projected() == [GPU_0]


def test_a_renamed_source_keeps_the_names(bench: Bench) -> None:
    bench.grant(A, GPU_0)
    bench.sync()
    source = bench.machine.layout.cdi_spec_dir
    (source / "nvidia.json").rename(source / "nvidia-gpu.json")
    report = bench.sync()
    assert bench.projected() == [GPU_0]
    assert len(list(bench.directory().iterdir())) == 1
    assert report.left_out == ()


def test_leftovers_and_foreign_files_go(bench: Bench) -> None:
    bench.grant(A, GPU_0)
    bench.sync()
    directory = bench.directory()
    (path,) = directory.iterdir()
    stolen = cards.spec("nvidia.com/gpu", [cards.device("1", cards.node("/dev/nvidia1", 195, 1))])
    (directory / "foreign.json").write_bytes(stolen)
    (directory / f".{path.name}.0123456789ab.tmp").write_bytes(b"half")
    (directory / "link.yaml").symlink_to(bench.machine.layout.cdi_spec_dir / "nvidia.json")
    os.mkfifo(directory / "pipe.json")
    (directory / "folder.json").mkdir()
    report = bench.sync()
    assert {each.name for each in directory.iterdir()} == {path.name, "folder.json"}
    assert len(report.removed) == 4
    assert bench.projected() == [GPU_0]


def test_a_link_or_a_file_that_others_may_write_is_replaced(bench: Bench, tmp_path: Path) -> None:
    bench.grant(A, GPU_0)
    bench.sync()
    (path,) = bench.directory().iterdir()
    path.chmod(0o666)
    assert bench.sync().written == (path.name,)
    aside = tmp_path / "aside"
    path.rename(aside)
    path.symlink_to(aside)
    assert bench.sync().written == (path.name,)
    assert not path.is_symlink()


def test_a_spec_that_the_engine_cannot_load_is_told_and_not_written(bench: Bench) -> None:
    device = {
        "name": "eth",
        "containerEdits": {"netDevices": [{"hostInterfaceName": "eth9", "name": "eth0"}]},
    }
    spec = {"cdiVersion": "1.1.0", "kind": "v.io/net", "devices": [device]}
    bench.machine.layout.cdi_spec_dir.joinpath("net.json").write_text(json.dumps(spec))

    def catalog() -> Catalog:
        return load_catalog([bench.machine.layout.cdi_spec_dir], library=Library.V1_1_0)

    wish = GrantRequest(repo=A, device="v.io/net=eth", granted_by="root", sharing=Sharing.SHARED)
    bench.store.grant([wish], load_catalog=catalog, probe=bench.machine.probe, repo_names={})
    reports = [
        sync_projection(
            bench.machine.layout,
            A,
            load_table=bench.store.read,
            load_catalog=catalog,
            probe=bench.machine.probe,
            clock=bench.clock,
            libraries=[library],
        )
        for library in (Library.V1_0_1, Library.V1_1_0)
    ]
    assert [len(each.written) for each in reports] == [0, 1]
    (left,) = reports[0].left_out
    assert (str(left.device), left.status) == ("v.io/net=eth", None)


def test_a_store_that_cannot_be_read_changes_nothing(bench: Bench) -> None:
    bench.grant(A, GPU_0)
    bench.sync()
    bench.machine.layout.grants.write_bytes(b"junk")
    with pytest.raises(RdcError):
        bench.sync()
    assert bench.projected() == [GPU_0]


def test_grants_and_specs_are_read_under_the_lock(bench: Bench) -> None:
    lock = bench.directory().with_name("cdi.lock")
    bench.grant(A, GPU_0)

    def load() -> Catalog:
        with pytest.raises(LockTimeoutError), locked(lock, timeout_s=0):
            pass
        return bench.machine.catalog()

    sync_projection(
        bench.machine.layout,
        A,
        load_table=bench.store.read,
        load_catalog=load,
        probe=bench.machine.probe,
        clock=bench.clock,
        libraries=EVERY,
    )
    with locked(lock, timeout_s=0), pytest.raises(LockTimeoutError):
        bench.sync()


def test_a_symlinked_directory_is_refused(bench: Bench, tmp_path: Path) -> None:
    bench.grant(A, GPU_0)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious.json").write_text("{}")
    bench.directory().parent.mkdir(parents=True)
    bench.directory().symlink_to(victim)
    with pytest.raises(AccessError):
        bench.sync()
    assert [each.name for each in victim.iterdir()] == ["precious.json"]


def test_a_folder_in_the_way_is_told(bench: Bench) -> None:
    bench.grant(A, GPU_0)
    (name,) = bench.sync().written
    path = bench.directory() / name
    path.unlink()
    path.mkdir()
    (path / "x").touch()
    with pytest.raises(AccessError):
        bench.sync()


def test_callers_at_once_end_with_the_latest_grants(bench: Bench) -> None:
    """Two processes grant, revoke and sync one repo at once: old grants never come back over newer ones."""
    script = """
import sys
from pathlib import Path

from base.layout import Layout
from cdi.core.names import QualifiedName
from cdi.directories import load_catalog
from tests.grants.cards import A, Machine
from tests.grants.test_projector import Bench

bench = Bench(Machine(Layout(Path(sys.argv[1]))))
mine = QualifiedName.parse(sys.argv[2])
for _ in range(25):
    bench.grant(A, str(mine))
    bench.sync()
    assert mine in load_catalog([bench.directory()]).devices, "granted, but not there"
    bench.store.revoke(A, [str(mine)], repo_names={})
    bench.sync()
    assert mine not in load_catalog([bench.directory()]).devices, "revoked, but still there"
"""
    command = [sys.executable, "-c", script, str(bench.machine.layout.root)]
    running = [subprocess.Popen([*command, name], cwd=Path(__file__).parents[2]) for name in (GPU_0, GPU_1)]
    assert [each.wait(timeout=50) for each in running] == [0, 0]
    bench.sync()
    assert bench.projected() == []
