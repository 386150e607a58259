#!/usr/bin/env python3
"""Granting, listing and deciding with 1,000 repos of 20 grants each, against 10 repos, side by side.

    bench/grants_scale.py                       both sizes, all measurements, ratios
    bench/grants_scale.py --repos 10 5000       other sizes
    bench/grants_scale.py --no-cli              only what happens inside a process

Rounds of the two sizes alternate, so that a slow minute of the machine hits both; medians are reported.
Command lines are timed as a user sees them, with the start of Python. What the gate does is timed inside one
process, as in the gate: a decision while nothing has changed, and the first one after another process's
grant, which has to read the store again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from base.clock import SystemClock
from base.layout import Layout
from cdi.core.names import QualifiedName
from cdi.directories import load_catalog
from cdi.probe import SystemProbe
from gate.core.policy import Granted
from gate.core.repo import RepoName
from gate.state import MachineState
from grants.core import codec
from grants.core.machine import MachineView
from grants.core.model import Grant, GrantRequest, RepoGuid, Sharing, whole_seconds
from grants.core.table import GrantTable
from grants.store import GrantStore
from machine.repos import NewRepo, create

CARDS = 24
GRANTS = 20
TARGET_RATIO = 2.0


NONE = RepoGuid("")


@dataclass
class Size:
    """A machine root with so many repos."""

    repos: int
    layout: Layout
    first: RepoGuid = NONE
    samples: dict[str, list[float]] = field(default_factory=dict)

    def build(self) -> None:
        """Specs, repo files, and the store, written as one document rather than grant by grant."""
        clock = SystemClock()
        nodes = [{"path": f"/dev/nvidia{n}", "type": "c", "major": 195, "minor": n} for n in range(CARDS)]
        devices = [
            {"name": str(n), "containerEdits": {"deviceNodes": [node]}} for n, node in enumerate(nodes)
        ]
        devices += [
            {"name": f"GPU-{n:08x}-1111-4222-8333-444444444444", "containerEdits": {"deviceNodes": [node]}}
            for n, node in enumerate(nodes)
        ]
        spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
        self.layout.cdi_spec_dir.mkdir(parents=True)
        (self.layout.cdi_spec_dir / "nvidia.json").write_text(json.dumps(spec))
        view = MachineView(load_catalog([self.layout.cdi_spec_dir]), SystemProbe())
        table = GrantTable.empty()
        template = create(self.layout, NewRepo(name="repo-0"))
        self.first = RepoGuid(template.guid)
        for number in range(self.repos):
            guid = self.first
            if number:  # each `create` looks at all repos there are, so the others are copied
                guid = RepoGuid(f"{number:08x}-1111-4222-8333-444444444444")
                repo = replace(template, name=RepoName(f"repo-{number}"), guid=guid)
                (self.layout.repos_dir / f"repo-{number}.yaml").write_bytes(repo.to_yaml())
            for card in range(GRANTS):
                name = QualifiedName.parse(f"nvidia.com/gpu={card}")
                pin = view.meaning(name).pin
                assert pin is not None
                table = table.with_grant(
                    Grant(
                        repo=guid,
                        device=name,
                        sharing=Sharing.SHARED,
                        isolation=None,
                        vram_mb=None,
                        expires_at=None,
                        granted_at=whole_seconds(clock.now()),
                        granted_by="root",
                        note="",
                        pin=pin,
                    )
                )
        self.layout.grants.parent.mkdir(parents=True, exist_ok=True)
        self.layout.grants.write_bytes(codec.encode(table.next_generation()))
        self.layout.grants.chmod(0o644)

    def time(self, what: str, action: Callable[[], object]) -> None:
        start = time.perf_counter()
        action()
        self.samples.setdefault(what, []).append((time.perf_counter() - start) * 1000)

    def median(self, what: str) -> float:
        return statistics.median(self.samples[what])


def rdc(size: Size, *arguments: str) -> Callable[[], object]:
    """The command as a user runs it. Exit status 0, or 6 for a grant whose daemon does not run here."""

    def run() -> None:
        program = "from cli.rdc.main import main; main()"
        command = [sys.executable, "-c", program, *arguments, "--root", str(size.layout.root)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1]
        )
        if done.returncode not in {0, 6}:
            raise SystemExit(f"{' '.join(command)}: {done.returncode}: {done.stderr}")

    return run


def measure_cli(sizes: Sequence[Size], rounds: int) -> None:
    for _ in range(rounds):
        for size in sizes:
            size.time("rdc repo gpu grant --dry-run", rdc(size, *GRANT, "--dry-run"))
            size.time("rdc repo gpu grant", rdc(size, *GRANT))
            assert GrantStore(size.layout, SystemClock()).read().holders_of(QualifiedName.parse(FREE))
            size.time("rdc repo gpu revoke", rdc(size, "repo", "gpu", "revoke", "repo-0", "--device", FREE))
            size.time("rdc repo gpu list REPO", rdc(size, "repo", "gpu", "list", "repo-0", "-o", "json"))


FREE = f"nvidia.com/gpu={CARDS - 1}"
GRANT = ("repo", "gpu", "grant", "repo-0", "--device", FREE, "--exclusive")


def measure_store(sizes: Sequence[Size], rounds: int) -> None:
    """What the commands do, without the start of Python: a store that was never read before."""
    for _ in range(rounds):
        for size in sizes:
            size.time("read (fresh process)", GrantStore(size.layout, SystemClock()).read)
            size.time("grant (fresh process)", partial(grant_free, size))
            GrantStore(size.layout, SystemClock()).revoke(size.first, [FREE], repo_names={})


def grant_free(size: Size) -> None:
    """Grant the first repo the card that nobody holds."""
    GrantStore(size.layout, SystemClock()).grant(
        [GrantRequest(repo=size.first, device=FREE, sharing=Sharing.EXCLUSIVE, granted_by="root")],
        load_catalog=partial(load_catalog, [size.layout.cdi_spec_dir]),
        probe=SystemProbe(),
        repo_names={},
    )


async def measure_gate(sizes: Sequence[Size], rounds: int) -> None:
    probe, clock = SystemProbe(), SystemClock()
    held = QualifiedName.parse("nvidia.com/gpu=0")
    states = [MachineState(GrantStore(s.layout, clock), [s.layout.cdi_spec_dir], probe, clock) for s in sizes]

    async def decide(size: Size, state: MachineState, what: str) -> None:
        start = time.perf_counter()
        decision = (await state.grants_of(size.first)).status(held)
        size.samples.setdefault(what, []).append((time.perf_counter() - start) * 1000)
        assert isinstance(decision, Granted), decision

    for state, size in zip(states, sizes, strict=True):
        await decide(size, state, "gate: first decision after start")
    for _ in range(rounds):
        for state, size in zip(states, sizes, strict=True):
            grant_free(size)
            await decide(size, state, "gate: decision after a grant")
            for _ in range(20):
                await decide(size, state, "gate: decision")


def report(sizes: Sequence[Size]) -> bool:
    """Print medians in milliseconds and ratios to the first size; False when one is beyond the target."""
    small, others = sizes[0], sizes[1:]
    titles = [f"{size.repos} repos" for size in sizes]
    print(f"{'median, ms':36}{''.join(f'{title:>14}' for title in titles)}{'ratio':>9}")
    good = True
    for what in small.samples:
        medians = [size.median(what) for size in sizes]
        ratio = medians[-1] / medians[0] if others else 1.0
        judged = what.startswith(("rdc", "gate: decision")) and what != "gate: decision after a grant"
        beyond = judged and ratio > TARGET_RATIO
        good = good and not beyond
        numbers = "".join(f"{value:14.3f}" for value in medians)
        print(f"{what:36}{numbers}{ratio:9.2f}{'  beyond ' + str(TARGET_RATIO) if beyond else ''}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repos", type=int, nargs="+", default=[10, 1000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-cli", action="store_true")
    options = parser.parse_args()
    os.environ.pop("RDC_ROOT", None)
    with tempfile.TemporaryDirectory(prefix="gs") as scratch:
        sizes = [Size(repos, Layout(Path(scratch) / str(repos))) for repos in options.repos]
        for size in sizes:
            size.build()
            print(
                f"{size.repos} repos: store of {size.layout.grants.stat().st_size / 1e6:.2f} MB", flush=True
            )
        if not options.no_cli:
            measure_cli(sizes, options.rounds)
        measure_store(sizes, options.rounds)
        asyncio.run(measure_gate(sizes, options.rounds))
        return 0 if report(sizes) else 1


if __name__ == "__main__":
    sys.exit(main())
