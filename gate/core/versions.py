"""The API versions that clients are offered: none newer than the gate was audited for. Pure.

Source: Docker Engine API, `GET /_ping` (header `Api-Version`) and `GET /version` (`ApiVersion`), from which
clients negotiate. Facts page on gates, section 3.3: a request without a version means the daemon's newest
one, so that the gate writes its own newest one in where the daemon knows more.
"""

import json
import re
from dataclasses import replace

from gate.core.target import MAX_AUDITED_API
from gate.http.message import ResponseHead

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\Z", re.ASCII)
_HEADER = b"api-version"
_NEWEST = MAX_AUDITED_API.encode("ascii")


def version_number(text: object) -> tuple[int, int] | None:
    """`1.51` as numbers, so that they compare; None for anything else."""
    found = _VERSION.match(text) if isinstance(text, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def too_new(text: object) -> bool:
    """Whether this is a version beyond the audited ones; what cannot be read counts as one."""
    number, newest = version_number(text), version_number(MAX_AUDITED_API)
    return number is None or newest is None or number > newest


def meant_version(daemon_newest: object) -> str | None:
    """What a request without a version is to mean: the audited version; None where it is the daemon's own."""
    return MAX_AUDITED_API if too_new(daemon_newest) else None


def with_version(wire: bytes, version: str) -> bytes:
    """The request head (and what follows it) for this API version, unless it names one."""
    method, space, rest = wire.partition(b" ")
    return wire if rest.startswith(b"/v1.") else method + space + b"/v" + version.encode("ascii") + rest


def capped_head(head: ResponseHead) -> ResponseHead:
    """The answer's head offering no version beyond the audited ones."""
    offered = head.header(_HEADER)
    if offered is None or not too_new(offered.decode("latin-1")):
        return head
    headers = tuple((name, _NEWEST if name == _HEADER else value) for name, value in head.headers)
    return replace(head, headers=headers, verbatim=False)


def capped_version(body: bytes) -> bytes:
    """The answer to `GET /version`, offering no version beyond the audited ones; anything else as it is."""
    try:
        answer: object = json.loads(body)
    except ValueError:
        return body
    if not isinstance(answer, dict) or not too_new(answer.get("ApiVersion", MAX_AUDITED_API)):
        return body
    answer["ApiVersion"] = MAX_AUDITED_API
    components = answer.get("Components")
    for each in components if isinstance(components, list) else ():
        details = each.get("Details") if isinstance(each, dict) else None
        if isinstance(details, dict) and "ApiVersion" in details:
            details["ApiVersion"] = MAX_AUDITED_API
    return json.dumps(answer, ensure_ascii=False).encode() + b"\n"
