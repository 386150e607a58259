"""Many processes grant and revoke at random while others of them are killed at any instant.

Run it as `python -m tests.grants.chaos --processes 64 --seconds 60`; it prints figures as JSON and fails with
what went wrong. Each process works on one repo of its own and on devices that all compete for. It writes
down, to disk, what it is about to ask and what was acknowledged. As nobody else touches its repo, the store
must at any time hold exactly what was acknowledged, or that with the one request on top that a kill left
open. The parent kills (every other time the one that holds the lock), puts a new process in place, and
reads the store without pause: it must always be readable, its generation never goes back, and no card may
have two holders of whom one is exclusive.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

from base.clock import SystemClock
from base.errors import RdcError
from cdi.core.catalog import Catalog
from grants.core.broken import GrantRefusedError, NotGrantedError
from grants.core.model import GrantRequest, RepoGuid, Sharing, format_instant
from grants.core.table import GrantTable
from grants.store import GrantStore
from tests.grants import cards

CARDS = 8
OPENED: Mapping[str, frozenset[int]] = {
    **{f"nvidia.com/gpu={n}": frozenset({n}) for n in range(CARDS)},
    **{f"nvidia.com/gpu={cards.uuid(n)}": frozenset({n}) for n in range(CARDS)},
    "nvidia.com/gpu=all": frozenset(range(CARDS)),
}
"""Which cards a name opens, told apart from the code under test."""

Held = Mapping[str, tuple[str, str]]
"""Device -> sharing, and end or an empty text."""


class ChaosError(Exception):
    """What must never happen has happened."""


@dataclass(slots=True)
class Journal:
    """One repo's log of intents and acknowledgements, on disk before the next step is taken."""

    path: Path
    held: Held = field(default_factory=dict)
    pending: dict[str, str] | None = None
    generations: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def load(cls, path: Path) -> "Journal":
        """Replay a log; a line that a kill cut off was never written."""
        journal = cls(path)
        raw = path.read_bytes() if path.exists() else b""
        for line in raw.split(b"\n")[:-1]:
            journal._take(json.loads(line))
        if raw and not raw.endswith(b"\n"):
            with path.open("r+b") as stream:
                stream.truncate(raw.rfind(b"\n") + 1)
        return journal

    def write(self, entry: Mapping[str, object]) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(entry).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._take(entry)

    def _take(self, entry: Mapping[str, object]) -> None:
        if "do" in entry:
            self.pending = dict(entry["do"])  # type: ignore[call-overload]
        elif "done" in entry:
            outcome = str(entry["done"])
            self.counts[outcome] += 1
            if outcome in {"granted", "revoked"}:
                assert self.pending is not None
                self.held = applied(self.held, self.pending)
                self.generations.append(int(entry["generation"]))  # type: ignore[call-overload]
            self.pending = None
        else:
            self.held = {device: (row[0], row[1]) for device, row in entry["base"].items()}  # type: ignore[attr-defined]
            self.pending = None


def applied(held: Held, request: Mapping[str, str]) -> Held:
    """What a repo holds once the request is done."""
    rest = {device: row for device, row in held.items() if device != request["device"]}
    if request["verb"] == "grant":
        rest[request["device"]] = (request["sharing"], request["ends"])
    return rest


def held_by(table: GrantTable, repo: RepoGuid) -> Held:
    return {
        str(grant.device): (
            grant.sharing.value,
            "" if grant.expires_at is None else format_instant(grant.expires_at),
        )
        for grant in table.of_repo(repo)
    }


def agrees(expected: Held, actual: Held) -> bool:
    """The same, but for grants whose end has come: any writer may have dropped those."""
    now = format_instant(datetime.now(UTC))
    if any(expected.get(device) != row for device, row in actual.items()):
        return False
    return all(device in actual or (row[1] and row[1] <= now) for device, row in expected.items())


def check_repo(journal: Journal, table: GrantTable, repo: RepoGuid) -> None:
    """The store holds what was acknowledged, give or take the request that a kill left open."""
    actual = held_by(table, repo)
    possible = [journal.held]
    if journal.pending is not None:
        possible.append(applied(journal.held, journal.pending))
    if not any(agrees(expected, actual) for expected in possible):
        msg = f"{repo} holds {actual}, acknowledged {journal.held}, open {journal.pending}"
        raise ChaosError(msg)


def check_exclusive(table: GrantTable, now: datetime) -> None:
    """No card with two holders of whom one is exclusive; by cards, not by the rules under test."""
    holders: dict[int, set[RepoGuid]] = {}
    exclusive: dict[int, set[RepoGuid]] = {}
    for grant in table:
        if not grant.live(now):
            continue
        for card in OPENED[str(grant.device)]:
            holders.setdefault(card, set()).add(grant.repo)
            if grant.sharing is Sharing.EXCLUSIVE:
                exclusive.setdefault(card, set()).add(grant.repo)
    for card, repos in exclusive.items():
        if len(holders[card]) > 1:
            msg = f"card {card} is held by {sorted(holders[card])}, exclusively by {sorted(repos)}"
            raise ChaosError(msg)


def requests(rng: random.Random) -> Iterator[dict[str, str]]:
    """Random requests without end."""
    while True:
        device = rng.choice(list(OPENED))
        ends = ""
        if rng.random() < 0.3:
            ends = format_instant(datetime.now(UTC) + timedelta(seconds=rng.randint(2, 5)))
        sharing = Sharing.EXCLUSIVE if rng.random() < 0.4 else Sharing.SHARED
        verb = rng.choice(["grant", "grant", "revoke"])
        yield {"verb": verb, "device": device, "sharing": sharing.value, "ends": ends}


def work(store: GrantStore, machine: cards.Machine, catalog: Catalog, repo: RepoGuid, path: Path) -> NoReturn:
    """One process: go on where the one before was killed, then ask and check without end."""
    journal = Journal.load(path)
    table = store.read()
    check_repo(journal, table, repo)
    journal.write({"base": held_by(table, repo)})
    rng = random.Random()
    for request in requests(rng):
        if request["verb"] == "revoke" and journal.held and rng.random() < 0.8:
            request["device"] = rng.choice(list(journal.held))
        journal.write({"do": request})
        journal.write(ask(store, machine, catalog, repo, request))
        check_repo(journal, store.read(), repo)
    raise AssertionError


def ask(
    store: GrantStore, machine: cards.Machine, catalog: Catalog, repo: RepoGuid, request: Mapping[str, str]
) -> Mapping[str, object]:
    try:
        if request["verb"] == "revoke":
            outcome = store.revoke(repo, [request["device"]], repo_names={})
            return {"done": "revoked", "generation": outcome.table.generation}
        wanted = GrantRequest(
            repo=repo,
            device=request["device"],
            sharing=Sharing(request["sharing"]),
            expires_at=datetime.fromisoformat(request["ends"]) if request["ends"] else None,
            granted_by="chaos",
        )
        outcome = store.grant([wanted], load_catalog=lambda: catalog, probe=machine.probe, repo_names={})
    except GrantRefusedError:
        return {"done": "refused"}
    except NotGrantedError:
        return {"done": "not-held"}
    return {"done": "granted", "generation": outcome.table.generation}


class Chaos:
    """The parent: starts, kills, replaces and looks on."""

    def __init__(self, root: Path, processes: int) -> None:
        self.machine = cards.machine(root, nvidia=cards.nvidia(*range(CARDS)))
        self.catalog = self.machine.catalog()
        self.store = GrantStore(self.machine.layout, SystemClock(), lock_timeout_s=60)
        self.repos = [RepoGuid(f"repo-{n}") for n in range(processes)]
        self.workers: dict[int, RepoGuid] = {}
        self.figures: Counter[str] = Counter()
        self.generation = 0

    def journal(self, repo: RepoGuid) -> Path:
        return self.machine.layout.root / f"{repo}.log"

    def start(self, repo: RepoGuid) -> None:
        child = os.fork()
        if child:
            self.workers[child] = repo
            return
        try:
            work(self.store, self.machine, self.catalog, repo, self.journal(repo))
        except BaseException as exc:  # noqa: BLE001 - a forked child must never return into the parent's code
            print(f"{repo}: {type(exc).__name__}: {exc}", file=sys.stderr, flush=True)  # noqa: T201
        finally:
            os._exit(1)

    def kill(self, *processes: int) -> None:
        """End these for good; afterwards tell if one of them had given up by itself."""
        gave_up: list[RepoGuid] = []
        for process in processes:
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            repo = self.workers.pop(process)
            self.figures["kills"] += 1
            if os.WIFEXITED(status):
                gave_up.append(repo)
        if gave_up:
            msg = f"the processes of {gave_up} gave up by themselves"
            raise ChaosError(msg)

    def victim(self) -> int:
        """Every other time the holder of the lock, where it can be told."""
        if random.random() < 0.5:
            try:
                holder = int((self.machine.layout.grants.parent / "grants.json.lock").read_bytes())
            except (OSError, ValueError):
                holder = 0
            if holder in self.workers:
                self.figures["kills_of_lock_holder"] += 1
                return holder
        return random.choice(list(self.workers))

    def look(self) -> None:
        """Read the store and check what holds at any time."""
        table = self.store.read()
        self.figures["reads"] += 1
        if table.generation < self.generation:
            msg = f"generation {table.generation} after {self.generation}"
            raise ChaosError(msg)
        self.generation = table.generation
        check_exclusive(table, datetime.now(UTC))

    def run(self, seconds: float, kills_per_s: float) -> Mapping[str, int]:
        """All of it; the figures.

        Raises:
            ChaosError, RdcError: something that must not happen.
        """
        try:
            for repo in self.repos:
                self.start(repo)
            end = time.monotonic() + seconds
            next_kill = time.monotonic() + 0.2
            while time.monotonic() < end:
                self.look()
                if time.monotonic() >= next_kill:
                    next_kill += random.expovariate(kills_per_s)
                    victim = self.victim()
                    repo = self.workers[victim]
                    self.kill(victim)
                    self.start(repo)
                time.sleep(0.002)
        finally:
            self.kill(*self.workers)
        self.judge()
        return self.figures

    def judge(self) -> None:
        """After the end: every repo holds what was acknowledged, every write was a generation of its own."""
        self.look()
        table = self.store.read()
        generations: Counter[int] = Counter()
        for repo in self.repos:
            journal = Journal.load(self.journal(repo))
            check_repo(journal, table, repo)
            generations.update(journal.generations)
            self.figures.update(journal.counts)
            self.figures["left_open"] += journal.pending is not None
            if journal.generations != sorted(set(journal.generations)):
                msg = f"{repo} saw generations go back"
                raise ChaosError(msg)
        if any(count > 1 for count in generations.values()):
            msg = "one generation was acknowledged twice"
            raise ChaosError(msg)
        if max(generations, default=0) > table.generation:
            msg = "an acknowledged generation is not in the store"
            raise ChaosError(msg)
        self.figures["generation"] = table.generation
        self.figures["acknowledged"] = len(generations)
        self.store.revoke_all(self.repos[0])
        self.figures["grants_left"] = len(self.store.read())


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when all went well, 1 with the reason on stderr when not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kills-per-s", type=float, default=20)
    parser.add_argument("--root", type=Path, help="an empty directory; kept afterwards")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        chaos = Chaos(options.root or Path(scratch), options.processes)
        try:
            figures = chaos.run(options.seconds, options.kills_per_s)
        except (ChaosError, RdcError) as exc:
            print(f"FAILED: {exc}", file=sys.stderr)  # noqa: T201
            return 1
        print(json.dumps(dict(figures), sort_keys=True))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
