"""Which reader takes which inspected route. Pure; the gatekeeper's one entry to the decisions."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gate.core.container import ExecRequest, StartRequest
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
        "commit": CommitRequest.parse,
        "container.create": CreateRequest.parse,
        "container.exec": ExecRequest.parse,
        "container.restart": StartRequest.parse,
        "container.start": StartRequest.parse,
        "container.unpause": StartRequest.parse,
        "container.update": UpdateRequest.parse,
        "image.create": ImageCreateRequest.parse,
        "network.connect": ConnectNetwork.parse,
        "network.create": CreateNetwork.parse,
        "network.disconnect": DisconnectNetwork.parse,
        "volume.create": VolumeRequest.parse,
    }
)
"""By route name, for every route of kind INSPECT."""


def parse(raw: bytes, matched: Matched) -> Inspected:
    """An inspected request, read.

    Args:
        raw: the whole body of a JSON route; empty for routes without one and for streamed ones.
        matched: a route of kind INSPECT.

    Raises:
        MalformedError: the body is not one JSON value of the right types; answered with 400.
    """
    return PARSERS[matched.route.name](raw, matched)
