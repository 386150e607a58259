"""The gate's own socket: whether it serves, and what it counted, in the text format that Prometheus reads.

Only root reaches it. Source: the Prometheus exposition format, written by `prometheus_client`.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from base.errors import UsageError
from base.layout import UNIX_PATH_MAX
from gate.metrics import GateMetrics

SOCKET_NAME = "gate.sock"


class Source(Protocol):
    """What health and metrics are read from."""

    def repos(self) -> Mapping[str, GateMetrics]:
        """The counters of each repo that is served, by repo name."""
        ...

    def problems(self) -> tuple[str, ...]:
        """What keeps a repo from being served, or the grants from being read, in words."""
        ...


class _Collector(Collector):
    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        repos = self._source.repos()
        requests = CounterMetricFamily(
            "rdc_gate_requests", "Requests by route and how they ended", labels=("repo", "route", "outcome")
        )
        for repo, metrics in repos.items():
            for (route, outcome), count in metrics.requests.items():
                requests.add_metric((repo, route, outcome.value), count)
        yield requests
        for name, help_, attribute in _GAUGES:
            gauge = GaugeMetricFamily(name, help_, labels=("repo",))
            for repo, metrics in repos.items():
                gauge.add_metric((repo,), getattr(metrics, attribute))
            yield gauge
        for name, help_, attribute in _COUNTERS:
            counter = CounterMetricFamily(name, help_, labels=("repo",))
            for repo, metrics in repos.items():
                counter.add_metric((repo,), getattr(metrics, attribute))
            yield counter


_GAUGES = (
    ("rdc_gate_connections", "Client connections open now", "connections"),
    ("rdc_gate_tunnels", "Two-way streams open now", "tunnels"),
)
_COUNTERS = (
    ("rdc_gate_client_bytes", "Bytes read from clients", "bytes_from_clients"),
    ("rdc_gate_daemon_bytes", "Bytes read from daemons", "bytes_from_daemons"),
    ("rdc_gate_connections_refused", "Connections beyond the limit", "connections_refused"),
    ("rdc_gate_failures", "Connections closed by an error of the gate's own", "failures"),
)


@asynccontextmanager
async def health(path: Path, source: Source) -> AsyncIterator[None]:
    """Serve `GET /healthz` and `GET /metrics` on a unix socket (0600) while the context is open.

    `/healthz` answers 200 with `{"status": "ok", "repos": [...], "problems": []}`, or 503 with status
    `degraded` when something keeps a repo or the grants from being served.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(source))

    async def healthz(_request: web.Request) -> web.Response:
        problems = source.problems()
        document = {
            "status": "degraded" if problems else "ok",
            "repos": sorted(source.repos()),
            "problems": list(problems),
        }
        text = json.dumps(document)
        return web.Response(status=503 if problems else 200, text=text, content_type="application/json")

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), content_type="text/plain", charset="utf-8")

    if len(os.fsencode(path)) > UNIX_PATH_MAX:
        raise UsageError(
            f"the socket path {path} is longer than {UNIX_PATH_MAX} bytes", hint="use a shorter --root"
        )
    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/metrics", metrics)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    path.unlink(missing_ok=True)  # noqa: ASYNC240 - before anything is served
    previous = os.umask(0o177)
    try:
        await web.UnixSite(runner, path).start()
    finally:
        os.umask(previous)
    try:
        yield
    finally:
        await runner.cleanup()
        path.unlink(missing_ok=True)  # noqa: ASYNC240 - as above
