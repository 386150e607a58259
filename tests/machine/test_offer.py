from pathlib import Path

import pytest

from base.layout import Layout
from machine.offer import Holding, offered
from tests.cli.rdc.runner import Rdc
from tests.fake_clock import FakeClock


@pytest.fixture
def rdc(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> Rdc:
    return Rdc(short_dir, capsys)


def test_names_with_what_they_open_and_who_holds_them(rdc: Rdc) -> None:
    rdc.write_spec()
    rdc.create("gpu-a")
    assert rdc.json("repo", "gpu", "grant", "gpu-a", "--device", "nvidia.com/gpu=0", "--exclusive").code == 0
    found = {str(each.name): each for each in offered(Layout(rdc.root), FakeClock())}
    assert {name: each.opens for name, each in found.items()} == {
        "nvidia.com/gpu=0": ("/dev/zero",),
        "nvidia.com/gpu=1": ("/dev/full",),
        "nvidia.com/gpu=all": ("/dev/full", "/dev/zero"),
    }
    assert found["nvidia.com/gpu=0"].holdings == (Holding(repo="gpu-a", exclusive=True),)
    assert found["nvidia.com/gpu=all"].holdings == ()
