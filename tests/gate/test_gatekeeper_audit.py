"""What the gatekeeper tells the audit log."""

from collections.abc import Sequence

import pytest

from base.errors import RdcError
from gate.audit_writer import AuditWriter
from gate.core.audit_chain import Actor, Entry, Event, Tip
from gate.core.denial import Denial as Refusal
from gate.core.denial import Rule, broken
from gate.core.policy import Forward
from gate.http.message import HttpCode, HttpError
from tests.fake_clock import FakeClock
from tests.gate.test_gatekeeper import DEVICE, HEAD, PEER, Desk
from tests.gate.test_gatekeeper import desk as desk  # noqa: PLC0414 - a fixture
from tests.gate.test_state import World
from tests.gate.test_state import world as world  # noqa: PLC0414 - a fixture


class Collected:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def append(self, entries: Sequence[Entry]) -> Tip:
        self.entries.extend(each for each in entries if each.event == Event.REQUEST_DENIED)
        return Tip.start()


@pytest.fixture
def collected(desk: Desk) -> Collected:
    log = Collected()
    desk.keeper.audit = AuditWriter(log, FakeClock(), Actor(uid=0, gid=0, pid=1))
    desk.keeper.audit.start()
    return log


async def written(desk: Desk, collected: Collected) -> list[Entry]:
    assert desk.keeper.audit is not None
    await desk.keeper.audit.close()
    return collected.entries


async def test_every_refusal_is_recorded_and_nothing_else(
    world: World, desk: Desk, collected: Collected
) -> None:
    body = {"Image": "x", "HostConfig": {**DEVICE, "Privileged": True}}
    await desk.ask("POST", "/v1.51/containers/create", body)
    await desk.ask("POST", "/v1.51/containers/create", b"{")
    desk.keeper.refused(HEAD, Refusal(status=403, broken=(broken(Rule.PLUGINS, "no"),)), peer=PEER)
    desk.keeper.unreadable(HttpError(HttpCode.TIMEOUT, "too slow"), peer=PEER)
    assert isinstance(await desk.ask("POST", "/v1.51/containers/create", {"Image": "x"}), Forward)
    entries = await written(desk, collected)
    assert [(entry.subject, set(entry.rules)) for entry in entries] == [
        ("container.create", {"grant-missing", "privileged"}),
        ("container.create", {"malformed"}),
        ("POST", {"plugins"}),
        ("-", {HttpCode.TIMEOUT.value}),
    ]
    for entry in entries:
        assert entry.actor == Actor(uid=PEER.uid, gid=PEER.gid, pid=PEER.pid)
        assert entry.repo is not None
        assert entry.repo.name == "gpu-a"
    assert "nvidia.com/gpu=0" in entries[0].detail


@pytest.mark.parametrize(
    ("failure", "code"), [(ValueError("surprise"), "gate-error"), (RdcError("no"), "error")]
)
async def test_what_cannot_be_decided_is_recorded_too(
    desk: Desk, collected: Collected, failure: Exception, code: str
) -> None:
    async def fail(*_: object) -> None:
        raise failure

    desk.keeper._state.grants_of = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(type(failure)):
        await desk.ask("POST", "/v1.51/containers/create", {"Image": "x"})
    entries = await written(desk, collected)
    assert [(entry.subject, entry.rules) for entry in entries] == [("container.create", (code,))]
