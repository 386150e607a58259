"""Which reader takes which inspected route. Pure; the gatekeeper's one entry to the decisions."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gate.core.builder import BuilderRequest
from gate.core.container import ExecRequest, ExecStartRequest, StartRequest
from gate.core.create import CreateRequest
from gate.core.image import BuildRequest, CommitRequest, ImageCreateRequest
from gate.core.netrules import ConnectNetwork, CreateNetwork, DisconnectNetwork
from gate.core.policy import Inspected
from gate.core.router import Matched
from gate.core.update import UpdateRequest
from gate.core.volume import VolumeRequest

Parse = Callable[[bytes, Matched], Inspected]

PARSERS: Mapping[str, Parse] = MappingProxyType(
    {
        "build": BuildRequest.parse,
        "build.grpc": BuilderRequest.parse,
        "build.session": BuilderRequest.parse,
        "commit": CommitRequest.parse,
        "container.archive_put": StartRequest.parse,
        "container.attach": StartRequest.parse,
        "container.attach_ws": StartRequest.parse,
        "container.create": CreateRequest.parse,
        "container.exec": ExecRequest.parse,
        "container.restart": StartRequest.parse,
        "container.start": StartRequest.parse,
        "container.unpause": StartRequest.parse,
        "container.update": UpdateRequest.parse,
        "exec.start": ExecStartRequest.parse,
        "image.create": ImageCreateRequest.parse,
        "network.connect": ConnectNetwork.parse,
        "network.create": CreateNetwork.parse,
        "network.disconnect": DisconnectNetwork.parse,
        "volume.create": VolumeRequest.parse,
    }
)
"""By route name: every route of kind INSPECT, and those whose tunnel opens only after a decision."""


def parse(raw: bytes, matched: Matched) -> Inspected:
    """An inspected request, read.

    Args:
        raw: the whole body of a JSON route; empty for routes without one and for streamed ones.
        matched: a route that is in `PARSERS`.

    Raises:
        MalformedError: the body is not one JSON value of the right types; answered with 400.
    """
    return PARSERS[matched.route.name](raw, matched)
