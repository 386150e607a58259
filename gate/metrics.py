"""What the transport counts; plain numbers that others may expose."""

from collections import Counter
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"  # by the daemon
    TUNNEL = "tunnel"  # by the daemon, with a two-way stream
    DENIED = "denied"  # by a rule
    MALFORMED = "malformed"  # by the reader
    UNREACHABLE = "unreachable"  # the daemon could not be asked, or broke off
    FAILED = "failed"  # the gate could not decide
    GONE = "gone"  # the client left first


class GateMetrics:
    """Counters (ever growing) and gauges (now) of one gate or one repo.

    `requests` counts by route name and outcome; requests that matched no route count under "-".
    """

    __slots__ = (
        "bytes_from_clients",
        "bytes_from_daemons",
        "connections",
        "connections_refused",
        "connections_total",
        "failures",
        "requests",
        "tunnels",
        "upstream_connects",
        "upstream_retries",
    )

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, Outcome]] = Counter()
        self.connections = 0
        self.connections_total = 0
        self.connections_refused = 0
        self.tunnels = 0
        self.bytes_from_clients = 0
        self.bytes_from_daemons = 0
        self.upstream_connects = 0
        self.upstream_retries = 0
        self.failures = 0
