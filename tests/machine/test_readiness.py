from pathlib import Path

import pytest

from machine.core.engine_info import EngineInfo
from machine.docker import Daemon
from machine.readiness import Readiness, State, await_readiness, judge
from tests.fake_clock import FakeClock
from tests.fake_daemon import fake_daemon

DEVICE = "nvidia.com/gpu=0"
SPEC_DIR = Path("/r/cdi")


def info(
    *,
    dirs: tuple[str, ...] = ("/r/cdi",),
    devices: frozenset[str] | None = frozenset({DEVICE}),
    warnings: tuple[str, ...] = (),
) -> EngineInfo:
    return EngineInfo(version="28.5.2", cdi_spec_dirs=dirs, devices=devices, warnings=warnings)


@pytest.mark.parametrize(
    ("said", "state", "resolvable"),
    [
        (info(), State.READY, True),
        (info(devices=None), State.UNLISTED, None),
        (info(devices=frozenset()), State.NOT_SEEN, False),
        (info(dirs=()), State.CDI_OFF, False),
        (info(dirs=("/etc/cdi", "/var/run/cdi")), State.OTHER_SPEC_DIRS, False),
        (info(dirs=("/etc/cdi", "/r/cdi")), State.READY, True),
        (info(dirs=("/r/../r/cdi",)), State.READY, True),
    ],
)
def test_what_an_answer_means(said: EngineInfo, state: State, resolvable: bool | None) -> None:
    found = judge(said, SPEC_DIR, (DEVICE,))
    assert found.state is state
    assert found.resolvable is resolvable


@pytest.mark.parametrize("said", [info(dirs=()), info(dirs=("/etc/cdi",)), info(dirs=("/etc/cdi", "/r/cdi"))])
def test_the_way_forward_names_the_projection(said: EngineInfo) -> None:
    assert str(SPEC_DIR) in judge(said, SPEC_DIR, (DEVICE,)).remedy


def test_the_daemons_own_words_about_cdi_are_passed_on() -> None:
    found = judge(info(devices=frozenset(), warnings=("no swap", "CDI: bad file x")), SPEC_DIR, (DEVICE,))
    assert "bad file x" in found.detail
    assert "no swap" not in found.detail


def test_a_projection_behind_a_link_is_the_same(short_dir: Path) -> None:
    (short_dir / "cdi").mkdir()
    (short_dir / "link").symlink_to(short_dir / "cdi")
    assert judge(info(dirs=(str(short_dir / "link"),)), short_dir / "cdi", ()).state is State.READY


def test_a_daemon_that_does_not_answer_is_not_waited_for(short_dir: Path) -> None:
    clock = FakeClock()
    found = await_readiness(Daemon(short_dir / "no.sock"), SPEC_DIR, (DEVICE,), clock, sleep=clock.sleep)
    assert found.state is State.UNREACHABLE
    assert found.resolvable is None
    assert clock.monotonic_s() == 0


def ask(
    short_dir: Path, answers: dict[str, tuple[int, object]], clock: FakeClock, sleep: object
) -> Readiness:
    with fake_daemon(short_dir / "d.sock", answers):
        return await_readiness(Daemon(short_dir / "d.sock"), SPEC_DIR, (DEVICE,), clock, sleep=sleep)


def said(*devices: str) -> tuple[int, object]:
    found = [{"Source": "cdi", "ID": each} for each in devices]
    return 200, {"ServerVersion": "28.5.2", "CDISpecDirs": [str(SPEC_DIR)], "DiscoveredDevices": found}


def test_a_device_that_appears_while_we_wait(short_dir: Path) -> None:
    clock, answers = FakeClock(), {"GET /info": said()}

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        answers["GET /info"] = said(DEVICE)

    assert ask(short_dir, answers, clock, sleep).state is State.READY


def test_waiting_ends(short_dir: Path) -> None:
    clock = FakeClock()

    def sleep(seconds: float) -> None:
        clock.sleep(100 * seconds)

    assert ask(short_dir, {"GET /info": said()}, clock, sleep).state is State.NOT_SEEN
    assert clock.monotonic_s() >= 5
