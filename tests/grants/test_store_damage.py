"""The store on bad days: damage, odd files, missing rights, full disks."""

import os
import resource
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from base.errors import AccessError, DamagedError, RdcError
from grants.core import codec
from grants.store import GrantStore
from tests.grants import cards
from tests.grants.cards import NAMES, A, B
from tests.grants.test_store import GPU_0, GPU_1, devices, grant

# --- damage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\x00" * 4096,
        b'{"schema_version":1}',
        b'{"schema_version":2,"generation":1,"pins":{},"grants":{}}',
        b'{"schema_version":true,"generation":1,"pins":{},"grants":{}}',
        b'{"schema_version":1,"generation":1,"pins":{},"grants":{},"extra":1}',
        b'{"schema_version":1,"schema_version":1,"generation":1,"pins":{},"grants":{}}',
    ],
)
def test_damage_is_refused_told_and_left_alone(
    store: GrantStore, machine: cards.Machine, damage: bytes
) -> None:
    grant(store, machine, A, GPU_0)
    grant(store, machine, A, GPU_1)
    path = machine.layout.grants
    path.write_bytes(damage)
    for attempt in (
        store.read,
        lambda: grant(store, machine, B, GPU_1),
        lambda: store.revoke(A, [GPU_0], repo_names=NAMES),
        lambda: store.revoke_all(A),
    ):
        with pytest.raises(DamagedError) as caught:
            attempt()
        assert caught.value.hint
    assert path.read_bytes() == damage


def test_the_hint_of_a_damaged_store_brings_back_the_generation_before(
    store: GrantStore, machine: cards.Machine
) -> None:
    grant(store, machine, A, GPU_0)
    grant(store, machine, A, GPU_1)
    machine.layout.grants.write_bytes(machine.layout.grants.read_bytes()[:-40])
    with pytest.raises(DamagedError) as caught:
        store.read()
    _run_hint(caught.value)
    assert devices(store.read(), A) == [GPU_0]
    grant(store, machine, A, GPU_1)
    assert devices(store.read(), A) == [GPU_0, GPU_1]


def test_the_hint_of_a_store_without_a_good_backup_starts_anew(
    store: GrantStore, machine: cards.Machine
) -> None:
    grant(store, machine, A, GPU_0)
    grant(store, machine, A, GPU_1)
    machine.layout.grants.write_bytes(b"junk")
    machine.layout.grants.with_name("grants.json.bak").write_bytes(b"junk")
    with pytest.raises(DamagedError) as caught:
        store.read()
    _run_hint(caught.value)
    assert len(store.read()) == 0
    grant(store, machine, A, GPU_0)


def test_a_lost_store_is_not_taken_for_an_empty_one(store: GrantStore, machine: cards.Machine) -> None:
    grant(store, machine, A, GPU_0)
    grant(store, machine, A, GPU_1)
    machine.layout.grants.unlink()
    for attempt in (store.read, lambda: grant(store, machine, B, GPU_0)):
        with pytest.raises(DamagedError) as caught:
            attempt()
    _run_hint(caught.value)
    assert devices(store.read(), A) == [GPU_0]


def _run_hint(error: RdcError) -> None:
    """Run the first command that the hint quotes, as its reader would."""
    command = error.hint.split("'")[1]
    subprocess.run(["sh", "-euc", command], check=True)


# --- permissions and odd files ----------------------------------------------------------------------------


def test_a_store_that_others_may_write_is_not_believed(store: GrantStore, machine: cards.Machine) -> None:
    grant(store, machine, A, GPU_0)
    for mode in (0o666, 0o664, 0o646):
        machine.layout.grants.chmod(mode)
        with pytest.raises(AccessError):
            store.read()
    machine.layout.grants.chmod(0o644)
    assert len(store.read()) == 1


def test_a_symlink_is_refused_and_not_replaced(
    store: GrantStore, machine: cards.Machine, tmp_path: Path
) -> None:
    grant(store, machine, A, GPU_0)
    elsewhere = tmp_path / "elsewhere.json"
    machine.layout.grants.rename(elsewhere)
    machine.layout.grants.symlink_to(elsewhere)
    for attempt in (store.read, lambda: grant(store, machine, A, GPU_1)):
        with pytest.raises(AccessError):
            attempt()
    assert machine.layout.grants.is_symlink()
    assert codec.parse(elsewhere.read_bytes()).generation == 1


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_what_is_no_file_is_refused_at_once(store: GrantStore, machine: cards.Machine, kind: str) -> None:
    machine.layout.grants.parent.mkdir(parents=True)
    if kind == "directory":
        machine.layout.grants.mkdir()
    else:
        os.mkfifo(machine.layout.grants, 0o644)
    for attempt in (store.read, lambda: grant(store, machine, A, GPU_1)):
        with pytest.raises(AccessError):
            attempt()


def test_a_symlinked_lock_is_refused(store: GrantStore, machine: cards.Machine, tmp_path: Path) -> None:
    machine.layout.grants.parent.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    machine.layout.grants.with_name("grants.json.lock").symlink_to(victim)
    with pytest.raises(AccessError):
        grant(store, machine, A, GPU_0)
    assert victim.read_text() == "precious"


def test_only_the_owner_may_hold_the_lock(store: GrantStore, machine: cards.Machine) -> None:
    grant(store, machine, A, GPU_0)
    assert stat.S_IMODE(machine.layout.grants.with_name("grants.json.lock").stat().st_mode) == 0o600


@contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes: what a full disk does, at a place of our choice."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_when_the_disk_is_full_nothing_is_lost_and_nothing_left(
    store: GrantStore, machine: cards.Machine
) -> None:
    grant(store, machine, A, GPU_0)
    before = machine.layout.grants.read_bytes()
    with _file_size_limit(100), pytest.raises(RdcError) as caught:
        grant(store, machine, A, GPU_1)
    assert (caught.value.code, caught.value.exit_code) == ("error", 1)
    assert machine.layout.grants.read_bytes() == before
    assert not list(machine.layout.grants.parent.glob(".*"))
    grant(store, machine, A, GPU_1)


def test_a_user_without_rights_reads_but_does_not_write(clock: cards.StillClock) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        machine = cards.machine(Path(scratch))
        store = GrantStore(machine.layout, clock)
        grant(store, machine, A, GPU_0)
        folder = machine.layout.grants.parent
        (folder / "grants.json.lock").chmod(0o400)
        folder.chmod(0o555)
        if os.geteuid() == 0:
            assert _as_nobody(lambda: _reads_only(store, machine))
        else:
            assert _reads_only(store, machine)
        folder.chmod(0o755)
        assert len(store.read()) == 1


def _reads_only(store: GrantStore, machine: cards.Machine) -> bool:
    try:
        grant(store, machine, A, GPU_1)
    except AccessError as exc:
        return exc.exit_code == 4 and len(store.read()) == 1
    return False


def _as_nobody(claim: Callable[[], bool]) -> bool:
    """Whether the claim is true for a process of a user without rights."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            code = 0 if claim() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_left_over_temporary_files_go_with_the_next_write(store: GrantStore, machine: cards.Machine) -> None:
    grant(store, machine, A, GPU_0)
    folder = machine.layout.grants.parent
    (folder / ".grants.json.0123456789ab.tmp").write_bytes(b"half")
    (folder / ".grants.json.previous.tmp").write_bytes(b"half")
    grant(store, machine, A, GPU_1)
    assert {each.name for each in folder.iterdir()} == {"grants.json", "grants.json.bak", "grants.json.lock"}
