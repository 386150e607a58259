import json
from datetime import timedelta
from pathlib import Path

import pytest

from base.layout import Layout
from gate.core.repo import RepoConfig
from grants.core.machine import GrantState
from grants.core.model import GrantRequest, RepoGuid
from grants.core.rules import GrantRefusedError
from machine.gpu import Gpu
from machine.readiness import State
from machine.repos import NewRepo, create
from tests.cli.rdc.runner import SPEC
from tests.fake_clock import FakeClock
from tests.fake_daemon import fake_daemon

DEVICE = "nvidia.com/gpu=0"


@pytest.fixture
def layout(short_dir: Path) -> Layout:
    (short_dir / "etc/cdi").mkdir(parents=True)
    (short_dir / "etc/cdi/nvidia.yaml").write_text(SPEC)
    return Layout(short_dir)


@pytest.fixture
def repo(layout: Layout) -> RepoConfig:
    return create(layout, NewRepo(name="a", upstream=f"unix://{layout.root}/d.sock"))


def request(repo: RepoConfig, device: str = DEVICE, **terms: object) -> GrantRequest:
    return GrantRequest(repo=RepoGuid(repo.guid), device=device, granted_by="test", **terms)


def projected(layout: Layout, repo: RepoConfig) -> list[str]:
    specs = [json.loads(path.read_text()) for path in layout.repo(repo.guid).cdi_spec_dir.iterdir()]
    return [f"{spec['kind']}={device['name']}" for spec in specs for device in spec["devices"]]


def test_a_grant_is_projected_also_when_nobody_answers(layout: Layout, repo: RepoConfig) -> None:
    done = Gpu(layout, FakeClock()).grant(repo, [request(repo)])
    assert done.outcome.written
    assert done.readiness is not None
    assert done.readiness.state is State.UNREACHABLE
    assert projected(layout, repo) == [DEVICE]


def test_a_refused_grant_projects_nothing(layout: Layout, repo: RepoConfig) -> None:
    with pytest.raises(GrantRefusedError):
        Gpu(layout, FakeClock()).grant(repo, [request(repo), request(repo, "x.y/z=0")])
    assert projected(layout, repo) == []


def test_a_projection_that_cannot_be_written_is_told(layout: Layout, repo: RepoConfig) -> None:
    spec_dir = layout.repo(repo.guid).cdi_spec_dir
    spec_dir.rmdir()
    spec_dir.symlink_to("/tmp")
    done = Gpu(layout, FakeClock()).grant(repo, [request(repo)])
    assert done.readiness is not None
    assert done.readiness.resolvable is False
    assert Gpu(layout, FakeClock()).grants_of(RepoGuid(repo.guid))


def test_a_device_that_the_daemons_library_cannot_load_is_told(layout: Layout, repo: RepoConfig) -> None:
    newer = SPEC.replace("cdiVersion: 0.5.0", "cdiVersion: 0.7.0").replace(
        "hostPath: /dev/zero}]", "hostPath: /dev/zero}], additionalGids: [44]", 1
    )
    (layout.cdi_spec_dir / "nvidia.yaml").write_text(newer)
    spec_dir = str(layout.repo(repo.guid).cdi_spec_dir)
    info = {"ServerVersion": "25.0.15", "CDISpecDirs": [spec_dir]}
    with fake_daemon(layout.root / "d.sock", {"GET /info": (200, info)}):
        done = Gpu(layout, FakeClock()).grant(repo, [request(repo)])
    assert done.readiness is not None
    assert done.readiness.resolvable is False
    assert DEVICE in done.readiness.detail


def test_grants_are_listed_with_their_state(layout: Layout, repo: RepoConfig) -> None:
    clock = FakeClock()
    gpu = Gpu(layout, clock)
    soon = clock.now() + timedelta(seconds=5)
    gpu.grant(repo, [request(repo), request(repo, "nvidia.com/gpu=1", expires_at=soon)])
    assert [status.state for _, status in gpu.list(None)] == [GrantState.LIVE, GrantState.LIVE]
    clock.sleep(5)
    states = {str(grant.device): status.state for grant, status in gpu.list(repo)}
    assert states == {DEVICE: GrantState.LIVE, "nvidia.com/gpu=1": GrantState.EXPIRED}
    assert gpu.name_of(RepoGuid(repo.guid)) == "a"
    assert gpu.name_of(RepoGuid("gone")) == "gone"


def test_a_revoke_takes_the_device_out_of_the_projection(layout: Layout, repo: RepoConfig) -> None:
    gpu = Gpu(layout, FakeClock())
    gpu.grant(repo, [request(repo), request(repo, "nvidia.com/gpu=1")])
    done = gpu.revoke(RepoGuid(repo.guid), [DEVICE], repo, stop=False)
    assert done.holders is None
    assert done.unknown
    assert projected(layout, repo) == ["nvidia.com/gpu=1"]
    gpu.revoke(RepoGuid(repo.guid), None, repo, stop=False)
    assert projected(layout, repo) == []


def test_a_dry_run_asks_nobody(layout: Layout, repo: RepoConfig) -> None:
    with fake_daemon(layout.root / "d.sock", {}) as daemon:
        done = Gpu(layout, FakeClock()).grant(repo, [request(repo)], dry_run=True)
    assert done.readiness is None
    assert daemon.asked == []
    assert projected(layout, repo) == []
