"""No way round the gate: whatever a client does, no node that is not granted opens, on either engine."""

from collections.abc import Iterator

import pytest

from tests.engine import Engine
from tests.system.wall import Attempt, Wall, furnished
from tests.system.wall_attempts import attempts

ATTEMPTS = tuple(attempts())
CLASSES = {attempt.class_ for attempt in ATTEMPTS}


@pytest.fixture(scope="module")
def wall(each_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wall]:
    with furnished(each_engine, tmp_path_factory.mktemp("root")) as made:
        yield made


def test_there_are_enough_attempts() -> None:
    assert len(ATTEMPTS) >= 60
    assert len(CLASSES) >= 15


def test_the_node_is_there_to_be_opened(wall: Wall) -> None:
    """The operator's own containers hold it: an exec past the gate opens it.

    The privileged one runs only until the watcher has stopped it, which takes seconds, as it ignores SIGTERM.
    """
    daemon = wall.gated.daemon
    for container in ("privileged", "holder"):
        daemon.request("POST", f"/containers/{container}/start")
        body = {"AttachStdout": True, "Cmd": ["sh", "-c", wall.hardware.probe()]}
        made = daemon.request("POST", f"/containers/{container}/exec", body).json()
        said = daemon.request("POST", f"/exec/{made['Id']}/start", {"Detach": False}).body
        assert b"BREACH" in said, container


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda each: f"{each.class_}: {each.name}")
def test_no_ungranted_node_opens(wall: Wall, attempt: Attempt) -> None:
    attempt.act(wall)
    breaches, probed = wall.finish()
    assert breaches == 0
    assert probed > 0 or not attempt.runs
