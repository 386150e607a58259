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


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda each: f"{each.class_}: {each.name}")
def test_no_ungranted_node_opens(wall: Wall, attempt: Attempt) -> None:
    attempt.act(wall)
    breaches, probed = wall.finish()
    assert breaches == 0
    assert probed > 0 or not attempt.runs
