"""`match`: what a request head means. Pure.

The table is in `route_table`, the matching in `router`; this module is what the rest of the gate imports.
"""

from functools import lru_cache

from gate.core.denial import Denial
from gate.core.route_table import DENIED_FAMILIES, DENIED_METHODS, ROUTES
from gate.core.router import Body, Kind, Matched, Route, RouteTable

__all__ = ["ROUTES", "Body", "Kind", "Matched", "Route", "match"]

_TABLE = RouteTable(ROUTES, DENIED_FAMILIES, DENIED_METHODS)
_CACHED_BYTES = 256
_CACHED_TARGETS = 4096


def match(method: str, target: bytes) -> Matched | Denial:
    """The one route that a request head means, or the denial to answer with. Total, and cheap when repeated.

    Short targets are remembered: most of a client's requests are pings, lists and a few containers again and
    again. Long ones are not, so that nobody can fill the memory with them.
    """
    if len(target) <= _CACHED_BYTES and len(method) <= _CACHED_BYTES:
        return _cached(method, target)
    return _TABLE.match(method, target)


@lru_cache(maxsize=_CACHED_TARGETS)
def _cached(method: str, target: bytes) -> Matched | Denial:
    return _TABLE.match(method, target)
