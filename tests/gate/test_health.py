import json
import stat
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from base.errors import UsageError
from gate.health import health
from gate.metrics import GateMetrics, Outcome


class Source:
    def __init__(self) -> None:
        self.metrics = GateMetrics()
        self.faults: tuple[str, ...] = ()

    def repos(self) -> Mapping[str, GateMetrics]:
        return {'odd"name': self.metrics}

    def problems(self) -> tuple[str, ...]:
        return self.faults


async def test_a_path_that_no_socket_can_have(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        async with health(tmp_path / ("x" * 108), Source()):
            pass


async def test_health_and_metrics_over_a_socket_for_root_only(short_dir: Path) -> None:
    path = short_dir / "gate.sock"
    path.write_text("left behind")
    source = Source()
    async with health(path, source):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        connector = aiohttp.UnixConnector(str(path))
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.get("http://gate/healthz") as answer:
                assert answer.status == 200
                assert json.loads(await answer.text()) == {
                    "status": "ok",
                    "repos": ['odd"name'],
                    "problems": [],
                }
            source.faults = ("repo b: no",)
            async with session.get("http://gate/healthz") as answer:
                assert answer.status == 503
                assert json.loads(await answer.text())["problems"] == ["repo b: no"]
            source.metrics.requests["system.ping", Outcome.ANSWERED] += 3
            source.metrics.connections = 2
            async with session.get("http://gate/metrics") as answer:
                text = await answer.text()
            async with session.get("http://gate/other") as answer:
                assert answer.status == 404
    assert 'rdc_gate_requests_total{outcome="answered",repo="odd\\"name",route="system.ping"} 3.0' in text
    assert 'rdc_gate_connections{repo="odd\\"name"} 2.0' in text
    assert not path.exists()
