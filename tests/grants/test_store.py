"""The store: transactions, damage, permissions, several processes, kills."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from grants.core.broken import GrantRefusedError, NotGrantedError
from grants.core.model import GrantRequest, RepoGuid, Sharing
from grants.core.table import GrantTable
from grants.lock import LockTimeoutError, locked
from grants.store import GrantStore, Outcome
from tests.grants import cards
from tests.grants.cards import NAMES, NOW, A, B, C

GPU_0, GPU_1 = "nvidia.com/gpu=0", "nvidia.com/gpu=1"
ROOT = Path(__file__).resolve().parents[2]


def grant(
    store: GrantStore, machine: cards.Machine, repo: RepoGuid, *devices: str, **options: object
) -> Outcome:
    dry_run = bool(options.pop("dry_run", False))
    requests = [
        GrantRequest(repo=repo, device=device, granted_by="root", **options)  # type: ignore[arg-type]
        for device in devices
    ]
    return store.grant(
        requests, load_catalog=machine.catalog, probe=machine.probe, repo_names=NAMES, dry_run=dry_run
    )


def devices(table: GrantTable, repo: RepoGuid) -> list[str]:
    return [str(each.device) for each in table.of_repo(repo)]


def test_a_store_that_was_never_written_is_empty(store: GrantStore, machine: cards.Machine) -> None:
    assert (len(store.read()), store.read().generation, store.fingerprint()) == (0, 0, None)
    assert not machine.layout.grants.parent.exists()


def test_grant_then_read(store: GrantStore, machine: cards.Machine) -> None:
    outcome = grant(
        store, machine, A, GPU_0, GPU_1, vram_mb=8192, expires_at=NOW + timedelta(hours=8), note="ci"
    )
    table = store.read()
    assert table.generation == outcome.table.generation == 1
    assert table.of_repo(A) == outcome.change.granted
    assert outcome.written
    assert stat.S_IMODE(machine.layout.grants.stat().st_mode) == 0o644
    assert machine.layout.grants.read_bytes().startswith(b'{\n"schema_version":1,')


def test_every_write_changes_fingerprint_and_generation(store: GrantStore, machine: cards.Machine) -> None:
    seen = {store.fingerprint()}
    for generation in range(1, 6):
        grant(store, machine, A, GPU_0)
        assert store.read().generation == generation
        seen.add(store.fingerprint())
    assert len(seen) == 6
    assert store.fingerprint() == store.fingerprint()


def test_refused_or_dry_run_or_empty_writes_nothing(store: GrantStore, machine: cards.Machine) -> None:
    grant(store, machine, B, GPU_0, sharing=Sharing.EXCLUSIVE)
    before = store.fingerprint()
    with pytest.raises(GrantRefusedError):
        grant(store, machine, A, GPU_1, GPU_0)
    with pytest.raises(GrantRefusedError):
        grant(store, machine, A, GPU_0, dry_run=True)
    dry = grant(store, machine, A, GPU_1, dry_run=True)
    assert (dry.written, devices(dry.table, A)) == (False, [GPU_1])
    with pytest.raises(NotGrantedError):
        store.revoke(A, [GPU_1], repo_names=NAMES)
    assert not store.revoke(B, [GPU_0], repo_names=NAMES, dry_run=True).written
    assert not store.revoke_all(A).written
    assert store.fingerprint() == before


def test_dry_run_needs_no_lock_and_makes_no_folder(store: GrantStore, machine: cards.Machine) -> None:
    grant(store, machine, A, GPU_0, dry_run=True)
    assert not machine.layout.grants.parent.exists()


def test_revoke_and_revoke_all(store: GrantStore, machine: cards.Machine) -> None:
    grant(store, machine, A, GPU_0, GPU_1)
    grant(store, machine, B, GPU_1)
    assert store.revoke(A, [GPU_0], repo_names=NAMES).written
    assert (devices(store.read(), A), devices(store.read(), B)) == ([GPU_1], [GPU_1])
    assert len(store.revoke_all(A).change.revoked) == 1
    assert store.read().repos == (B,)


def test_ended_grants_go_with_the_next_write(
    store: GrantStore, machine: cards.Machine, clock: cards.StillClock
) -> None:
    grant(store, machine, A, GPU_0, expires_at=NOW + timedelta(minutes=1))
    clock.forward(minutes=1)
    assert devices(store.read(), A) == [GPU_0]
    outcome = grant(store, machine, B, GPU_0, sharing=Sharing.EXCLUSIVE)
    assert [each.repo for each in outcome.change.expired] == [A]
    assert store.read().repos == (B,)


def test_specs_are_read_under_the_lock(store: GrantStore, machine: cards.Machine) -> None:
    def load() -> "object":
        with (
            pytest.raises(LockTimeoutError),
            locked(machine.layout.grants.with_name("grants.json.lock"), timeout_s=0),
        ):
            pass
        return machine.catalog()

    request = GrantRequest(repo=A, device=GPU_0, granted_by="root")
    outcome = store.grant([request], load_catalog=load, probe=machine.probe, repo_names={})  # type: ignore[arg-type]
    assert outcome.written


def test_a_writer_that_waits_too_long_says_for_whom(machine: cards.Machine, clock: cards.StillClock) -> None:
    machine.layout.grants.parent.mkdir(parents=True)
    hasty = GrantStore(machine.layout, clock, lock_timeout_s=0.05)
    with (
        locked(machine.layout.grants.with_name("grants.json.lock"), timeout_s=0),
        pytest.raises(LockTimeoutError) as caught,
    ):
        grant(hasty, machine, A, GPU_0)
    assert f"process {os.getpid()} " in caught.value.message
    assert caught.value.exit_code == 6
    grant(hasty, machine, A, GPU_0)


# --- against a model --------------------------------------------------------------------------------------

_DEVICES = st.sampled_from([GPU_0, GPU_1, f"nvidia.com/gpu={cards.uuid(0)}", "nvidia.com/gpu=all"])
_CARDS = {GPU_0: {0}, GPU_1: {1}, f"nvidia.com/gpu={cards.uuid(0)}": {0}, "nvidia.com/gpu=all": {0, 1}}
_REPOS = st.sampled_from([A, B, C])


class StoreAgainstModel(RuleBasedStateMachine):
    """The store does what a dictionary would, and refuses to share a card that is held exclusively."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.clock = cards.StillClock()
        self.machine = cards.machine(Path(self.scratch.name))
        self.store = GrantStore(self.machine.layout, self.clock)
        self.model: dict[tuple[RepoGuid, str], tuple[Sharing, int | None]] = {}
        self.now_s = 0
        self.generation = 0

    def live(self) -> dict[tuple[RepoGuid, str], Sharing]:
        return {key: row[0] for key, row in self.model.items() if row[1] is None or self.now_s < row[1]}

    def refused(self, repo: RepoGuid, device: str, sharing: Sharing) -> bool:
        return any(
            other != repo
            and _CARDS[name] & _CARDS[device]
            and (how is Sharing.EXCLUSIVE or sharing is Sharing.EXCLUSIVE)
            for (other, name), how in self.live().items()
        )

    @rule(repo=_REPOS, device=_DEVICES, sharing=st.sampled_from(Sharing), lasts=st.none() | st.integers(1, 5))
    def grant(self, repo: RepoGuid, device: str, sharing: Sharing, lasts: int | None) -> None:
        expires_at = None if lasts is None else self.clock.now() + timedelta(seconds=lasts)
        try:
            grant(self.store, self.machine, repo, device, sharing=sharing, expires_at=expires_at)
        except GrantRefusedError:
            assert self.refused(repo, device, sharing)
            return
        assert not self.refused(repo, device, sharing)
        self.drop_ended()
        self.model[repo, device] = (sharing, None if lasts is None else self.now_s + lasts)
        self.generation += 1

    @rule(repo=_REPOS, device=_DEVICES)
    def revoke(self, repo: RepoGuid, device: str) -> None:
        try:
            self.store.revoke(repo, [device], repo_names=NAMES)
        except NotGrantedError:
            assert (repo, device) not in self.model
            return
        del self.model[repo, device]
        self.drop_ended()
        self.generation += 1

    @rule(repo=_REPOS)
    def revoke_all(self, repo: RepoGuid) -> None:
        before = len(self.model)
        self.drop_ended()
        self.model = {key: row for key, row in self.model.items() if key[0] != repo}
        self.generation += len(self.model) != before
        self.store.revoke_all(repo)

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.clock.forward(seconds=seconds)
        self.now_s += seconds

    def teardown(self) -> None:
        self.scratch.cleanup()

    def drop_ended(self) -> None:
        live = self.live()
        self.model = {key: row for key, row in self.model.items() if key in live}

    @invariant()
    def same(self) -> None:
        table = self.store.read()
        assert {(each.repo, str(each.device)): each.sharing for each in table} == {
            key: row[0] for key, row in self.model.items()
        }
        assert {(each.repo, str(each.device)) for each in table if each.live(self.clock.now())} == set(
            self.live()
        )
        assert table.generation == self.generation


def test_store_against_model() -> None:
    run_state_machine_as_test(
        StoreAgainstModel, settings=settings(max_examples=15, stateful_step_count=20, deadline=None)
    )


# --- processes --------------------------------------------------------------------------------------------


def test_two_processes_lose_no_grant(machine: cards.Machine) -> None:
    """Each writes fifty times to repos of its own; every write is there in the end."""
    script = """
import sys
from pathlib import Path

from base.clock import SystemClock
from base.layout import Layout
from grants.core.model import GrantRequest
from grants.store import GrantStore
from tests.grants import cards

machine = cards.Machine(Layout(Path(sys.argv[1])))
store = GrantStore(machine.layout, SystemClock())
catalog = machine.catalog()
for n in range(50):
    wish = GrantRequest(repo=f"{sys.argv[2]}{n}", device="nvidia.com/gpu=0", granted_by="root")
    store.grant([wish], load_catalog=lambda: catalog, probe=machine.probe, repo_names={})
"""
    arguments = [sys.executable, "-c", script, str(machine.layout.root)]
    running = [subprocess.Popen([*arguments, name], cwd=ROOT) for name in ("x", "y")]
    assert [each.wait(timeout=50) for each in running] == [0, 0]
    table = GrantStore(machine.layout, cards.StillClock()).read()
    assert (len(table), table.generation) == (100, 100)


@pytest.mark.slow
def test_chaos(tmp_path: Path) -> None:
    """Eight processes with kills for five seconds; `python -m tests.grants.chaos` is the long version."""
    command = [sys.executable, "-m", "tests.grants.chaos", "--processes", "8", "--seconds", "5"]
    ran = subprocess.run(
        [*command, "--root", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout)
    assert figures["kills"] > 10
    assert figures["acknowledged"] > 10
