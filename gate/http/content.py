"""Which Content-Type the daemon is told, for each kind of body.

Pure. dockerd reads a form body before the query, so that a body of type
`application/x-www-form-urlencoded` overrides what the query says (facts/gate.md 3.2): no form ever passes.
"""

from gate.http.message import HttpCode, HttpError, RequestHead
from gate.http.parse import media_type

JSON = b"application/json"


def json_content_type(head: RequestHead) -> bytes | None:
    """`application/json`, or None where there is no body.

    Raises:
        HttpError: there is a body of another type, of none or of two; dockerd would answer 400 too.
    """
    if not head.has_body:
        return None
    values = [value for name, value in head.headers if name == b"content-type"]
    if len(values) == 1 and media_type(values[0]) == JSON:
        return JSON
    shown = b", ".join(values)[:80].decode("latin-1")
    raise HttpError(
        HttpCode.CONTENT_TYPE, f"the body's Content-Type is {shown!r}", hint="send 'application/json'"
    )
