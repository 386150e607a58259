"""The gate and its audit log: written while it serves, told when it cannot be."""

import asyncio
from pathlib import Path

from base.layout import Layout
from gate.audit import AuditLog
from gate.core.audit_chain import Event
from tests.engine import request
from tests.fake_clock import FakeClock
from tests.gate.harness import until
from tests.gate.stub_upstream import StubUpstream
from tests.gate.test_audit_chain import WHO
from tests.gate.test_serve import Served
from tests.gate.test_serve import served as served  # noqa: PLC0414 - a fixture


def events(layout: Layout) -> list[str]:
    log = AuditLog(layout, FakeClock(), WHO)
    assert log.verify().whole
    return [record.entry.event for record in log.records()]


async def told(served: Served) -> bool:
    """Whether the gate says that its audit log cannot be written."""
    answer = await asyncio.to_thread(request, served.layout.gate_socket, "GET", "/healthz")
    return any("audit log" in problem for problem in answer.json()["problems"])  # type: ignore[attr-defined]


async def until_told(served: Served, *, so: bool) -> None:
    async with asyncio.timeout(20):
        while await told(served) is not so:  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.02)


async def test_the_gate_records_its_start_refusals_and_end(served: Served, short_dir: Path) -> None:
    async with StubUpstream(short_dir / "one") as daemon:
        socket = served.repo("a", daemon.path)
        await until(socket.exists)
        assert await served.get(socket, "/v1.51/plugins") == 403
        await until(lambda: Event.REQUEST_DENIED in events(served.layout))
    served.task.cancel()
    await asyncio.wait((served.task,))
    assert events(served.layout) == [Event.GATE_STARTED, Event.REQUEST_DENIED, Event.GATE_STOPPED]


async def test_a_log_that_cannot_be_written_refuses_no_less_and_is_told(
    served: Served, short_dir: Path
) -> None:
    async with StubUpstream(short_dir / "one") as daemon:
        socket = served.repo("a", daemon.path)
        await until(socket.exists)
        await until(lambda: Event.GATE_STARTED in events(served.layout))
        log = served.layout.audit_log
        kept = log.rename(log.with_name("kept"))
        log.mkdir()
        assert await served.get(socket, "/v1.51/plugins") == 403
        await until_told(served, so=True)
        assert await served.get(socket, "/v1.51/plugins") == 403
        log.rmdir()
        kept.rename(log)
        await until_told(served, so=False)
        await until(lambda: events(served.layout).count(Event.REQUEST_DENIED) == 2)
