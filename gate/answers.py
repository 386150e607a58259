"""The one change that the gate makes to an answer: its warnings are added to the daemon's.

Pure. Source: Docker's API: create, and what answers like it, has `"Warnings": [...]`, which the CLI prints.
"""

import json

from gate.http.message import Framing, ResponseHead
from gate.http.parse import media_type


def rewritable(head: ResponseHead, limit: int) -> bool:
    """Whether this answer is a success in JSON of a known length up to `limit` bytes, uncompressed."""
    return (
        200 <= head.status < 300
        and head.framing is Framing.LENGTH
        and head.content_length <= limit
        and media_type(head.header(b"content-type") or b"") == b"application/json"
        and head.header(b"content-encoding") is None
    )


def merge_warnings(body: bytes, warnings: tuple[str, ...]) -> bytes:
    """The JSON object `body` with `warnings` at the end of its `Warnings`; anything else stays as it is."""
    try:
        answer: object = json.loads(body)
    except ValueError:
        return body
    if not isinstance(answer, dict):
        return body
    present = answer.get("Warnings")
    own = present if isinstance(present, list) else []
    return json.dumps({**answer, "Warnings": [*own, *warnings]}, ensure_ascii=False).encode() + b"\n"
