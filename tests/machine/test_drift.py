"""What becomes of grants when a machine's spec is generated anew after something happened to its cards."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from base.layout import Layout
from gate.core.repo import RepoConfig
from grants.core.model import GrantRequest, RepoGuid
from machine.doctor import examine
from machine.gpu import Gpu
from machine.repos import NewRepo, create
from tests.fake_clock import FakeClock
from tests.grants import cards
from tests.shared_data import shared

SPECS = shared("cdi", "specs")
CARD = "GPU-1a2b000{0}-5c1e-4d2a-9b7f-a0c01a2b000{0}"
SLICE = "MIG-5f0b2a3c-1d4e-5b6f-8a90-0123456789a{}"


@dataclass(frozen=True, slots=True)
class Pair:
    """A machine's spec before and after, as a shared file or as our own bytes.

    `states` are the grants that are not live afterwards, by the device's name.
    """

    before: str | bytes
    after: str | bytes
    states: Mapping[str, str]


FOUR = "ubuntu-570-4gpu-ctk1.20.0-json.json"
OWN = {
    "own: the same again": Pair(cards.nvidia(0, 1), cards.nvidia(0, 1), {}),
    "own: reordered": Pair(cards.nvidia(0, 1), cards.nvidia(1, 0), {"0": "drifted", "1": "drifted"}),
    "own: one lost": Pair(
        cards.nvidia(0, 1),
        cards.nvidia(0),
        {"1": "unresolvable", cards.uuid(1): "unresolvable", "all": "drifted"},
    ),
}
SHARED = {
    "the same again": Pair(FOUR, FOUR, {}),
    "another toolkit": Pair("ubuntu-570-4gpu-ctk1.18.2.yaml", "ubuntu-570-4gpu-ctk1.19.1.yaml", {}),
    "reordered": Pair(FOUR, "ubuntu-570-4gpu-after-reboot-reordered.yaml", dict.fromkeys("0123", "drifted")),
    "one lost": Pair(
        FOUR,
        "ubuntu-570-3gpu-one-lost.yaml",
        {"3": "unresolvable", CARD.format(3): "unresolvable", "all": "drifted"},
    ),
    "another major for UVM": Pair(FOUR, "ubuntu-570-4gpu-uvm-major-changed.yaml", {}),
    "slices made anew": Pair(
        "headless-570-mig-3g-2g-1g-ctk1.20.0.yaml",
        "headless-570-mig-after-reconfigure.yaml",
        {
            "0:0": "drifted",
            "0:1": "drifted",
            "0:2": "unresolvable",
            **dict.fromkeys(map(SLICE.format, (1, 2, 3)), "unresolvable"),
            "all": "drifted",
        },
    ),
}
PAIRS = {**OWN, **({} if SPECS is None else SHARED)}


@pytest.fixture
def layout(short_dir: Path) -> Layout:
    made = Layout(short_dir)
    made.cdi_spec_dir.mkdir(parents=True)
    return made


def install(layout: Layout, source: str | bytes) -> None:
    """Put the spec in place of the one before, as the toolkit's service does."""
    if isinstance(source, str):
        assert SPECS is not None
        source = (SPECS / source).read_bytes()
    (layout.cdi_spec_dir / "nvidia.yaml").write_bytes(source)


def projected(layout: Layout, repo: RepoConfig) -> set[str]:
    documents = [json.loads(path.read_text()) for path in layout.repo(repo.guid).cdi_spec_dir.iterdir()]
    return {device["name"] for spec in documents for device in spec["devices"]}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_what_becomes_of_the_grants_of_every_name(layout: Layout, pair: Pair) -> None:
    install(layout, pair.before)
    gpu = Gpu(layout, FakeClock())
    repo = create(layout, NewRepo(name="a", upstream=f"unix://{layout.root}/d.sock"))
    guid = RepoGuid(repo.guid)
    names = {name.device: name for name in gpu.catalog().devices}
    gpu.grant(repo, [GrantRequest(repo=guid, device=str(name), granted_by="test") for name in names.values()])
    assert projected(layout, repo) == set(names)

    install(layout, pair.after)
    found = {str(grant.device.device): status for grant, status in gpu.list(repo)}
    assert {name: str(each.state) for name, each in found.items() if not each.live} == pair.states
    assert all(each.reason for name, each in found.items() if name in pair.states)
    told = [f"{each.check} {each.detail}" for each in examine(layout, FakeClock(), repo)]
    for name, state in pair.states.items():
        assert any(each.startswith(f"grant-{state} {names[name]}: ") for each in told)

    renewed = gpu.regrant(repo, [], granted_by="test", confirmed=None).outcome.change.granted
    assert {each.device.device for each in renewed} == {
        name for name, state in pair.states.items() if state == "drifted"
    }
    gpu.regrant(repo, [], granted_by="test", confirmed=renewed)
    lost = {name for name, state in pair.states.items() if state == "unresolvable"}
    assert {grant.device.device for grant, status in gpu.list(repo) if not status.live} == lost
    assert projected(layout, repo) == set(names) - lost
