"""Fixtures for all tests: real Docker engines, short folders, golden files."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.engine import (
    SLOTS,
    Daemon,
    Docker,
    Engine,
    MissingError,
    example_spec,
    locate,
    newest,
    remove_leftovers,
    write_spec,
)

# Hypothesis' own time limits say how busy the machine is, not whether the code is right.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

# what marks a test as one that needs an engine
ENGINE_FIXTURES = frozenset(
    {
        "gated28",
        "each_gated",
        "engine28",
        "engine26",
        "each_engine",
        "daemon",
        "daemon28",
        "daemon26",
        "each_daemon",
    }
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regen", action="store_true", help="rewrite golden files instead of comparing with them"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        remove_leftovers()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whatever uses an engine, so that `-m dockerd` finds all of them."""
    for item in items:
        if ENGINE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.dockerd)


def missing(capability: str, reason: str) -> NoReturn:
    """Skip, or fail where RDC_REQUIRE (comma-separated) names the capability: there it has to be present."""
    if capability in os.environ.get("RDC_REQUIRE", "").split(","):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _engine(slot: str) -> Engine:
    try:
        return locate(slot)
    except MissingError as exc:
        missing("dockerd", str(exc))


@pytest.fixture
def regen(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--regen"))


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """An empty folder with a path short enough for unix sockets deep inside it (at most 107 bytes)."""
    path = Path(tempfile.mkdtemp(prefix=f"rdc-{os.getpid()}-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def engine28() -> Engine:
    """The current engine."""
    return _engine("28")


@pytest.fixture(scope="session")
def engine26() -> Engine:
    """The older engine, which reads requests differently."""
    return _engine("26")


@pytest.fixture(scope="session", params=SLOTS)
def each_engine(request: pytest.FixtureRequest) -> Engine:
    """Both engines in turn."""
    return _engine(request.param)


@pytest.fixture
def daemon() -> Iterator[Callable[..., Daemon]]:
    """Starts private daemons: `daemon(engine28, config={...}, options=[...])`; they end with the test."""
    started: list[Daemon] = []

    def start(engine: Engine, *, image: bool = True, **options: object) -> Daemon:
        instance = Daemon(engine, **options)  # type: ignore[arg-type]
        started.append(instance)
        instance.start(image=image)
        return instance

    yield start
    for instance in started:
        instance.close()


class _Shared:
    """At most one shared daemon per engine and test process."""

    def __init__(self) -> None:
        self._running: dict[str, Daemon] = {}

    def of(self, engine: Engine) -> Daemon:
        found = self._running.get(engine.slot)
        if found is None or not found.alive:
            if found is not None:
                found.close()
            found = self._running[engine.slot] = Daemon(engine)
            found.start()
        return found

    def close(self) -> None:
        for instance in self._running.values():
            instance.close()


@pytest.fixture(scope="session")
def shared_daemons() -> Iterator[_Shared]:
    """Owner of the shared daemons."""
    shared = _Shared()
    yield shared
    shared.close()


def _lent(shared: _Shared, engine: Engine) -> Iterator[Daemon]:
    instance = shared.of(engine)
    write_spec(instance.cdi_dir, example_spec())
    yield instance
    instance.clean()


@pytest.fixture
def daemon28(shared_daemons: _Shared, engine28: Engine) -> Iterator[Daemon]:
    """A shared daemon of the current engine with the example spec; emptied after the test."""
    yield from _lent(shared_daemons, engine28)


@pytest.fixture
def daemon26(shared_daemons: _Shared, engine26: Engine) -> Iterator[Daemon]:
    """A shared daemon of the older engine with the example spec; emptied after the test."""
    yield from _lent(shared_daemons, engine26)


@pytest.fixture
def each_daemon(shared_daemons: _Shared, each_engine: Engine) -> Iterator[Daemon]:
    """Shared daemons of both engines in turn, with the example spec; emptied after the test."""
    yield from _lent(shared_daemons, each_engine)


@pytest.fixture
def docker_cli() -> Callable[[Path], Docker]:
    """Makes a CLI for a socket: `docker_cli(socket).run("ps")`."""
    try:
        engine = newest()
    except MissingError as exc:
        missing("dockerd", str(exc))
    return lambda socket: Docker(f"unix://{socket}", engine)
