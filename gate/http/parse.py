"""From bytes to heads: total over bytes, one pass, and never two readings of the same bytes.

Pure. Source: RFC 9112 sections 2-6; where the RFC lets a recipient be lenient (bare LF, obs-fold, a list of
equal lengths, absolute-form) this reader refuses, because the daemon behind it may be lenient otherwise.
"""

import re
from typing import NoReturn

from gate.http.message import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    Framing,
    Header,
    HttpCode,
    HttpError,
    RequestHead,
    ResponseHead,
)

HEAD_END = b"\r\n\r\n"
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") (/[!-~]*) HTTP/1\.1\r\n")
_ANY_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) (HTTP/[0-9]\.[0-9])\r\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):([^\r]*)\r\n")
_FIELDS = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n")
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DIGITS = re.compile(rb"[0-9]{1,19}")
_RESPONSE_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"trailer", b"upgrade"}
)
_CODINGS = frozenset({b"transfer-encoding"})


def find_head(data: bytes, seen: int = 0) -> int:
    """The length of the head at the start of `data`, or 0 while its end is not there yet.

    `seen` bytes were already looked at in vain, so that a head that comes byte by byte costs no more.

    Every beginning of a head is either a beginning of a valid one or refused at once, so that a client that
    speaks something else is told so instead of waiting; the verdict on a whole head never depends on how
    its bytes were cut.

    Raises:
        HttpError: no continuation of `data` is a head.
    """
    again = seen - 3 if seen > 3 else 0
    end = data.find(HEAD_END, again, MAX_HEAD_BYTES) + len(HEAD_END)
    if end >= len(HEAD_END):
        return end
    _refuse_bytes(data[:MAX_HEAD_BYTES], again)
    if len(data) >= MAX_HEAD_BYTES:
        raise _head_too_large()
    return 0


def parse_request_head(raw: bytes) -> RequestHead:
    """The request head that `raw` is, from the method to the empty line.

    Raises:
        HttpError: it breaks a rule; `status` says what to answer.
    """
    if len(raw) > MAX_HEAD_BYTES:
        raise _head_too_large()
    line = _REQUEST_LINE.match(raw)
    if line is None:
        _refuse_request_line(raw)
    headers = _fields(raw, line.end())
    target = line[2]
    if b"#" in target:
        raise HttpError(HttpCode.TARGET, "the request target holds a fragment", hint="leave out '#'")
    lengths: list[bytes] = []
    codings: list[bytes] = []
    connection: list[bytes] = []
    expects: list[bytes] = []
    upgrades: list[bytes] = []
    hosts = 0
    found = {
        b"content-length": lengths,
        b"transfer-encoding": codings,
        b"connection": connection,
        b"expect": expects,
        b"upgrade": upgrades,
    }
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name in found:
            found[name].append(value)
    if hosts != 1:
        raise HttpError(HttpCode.HOST, f"the request has {hosts} Host headers", hint="send exactly one")
    options = _options(connection)
    content_length, chunked = _request_framing(lengths, codings)
    return RequestHead(
        method=line[1].decode("ascii"),
        target=target,
        headers=headers,
        content_length=content_length,
        chunked=chunked,
        upgrade=_upgrade(upgrades, options),
        expect_continue=_expects(expects),
        keep_alive=b"close" not in options,
    )


def parse_response_head(raw: bytes, *, method: str) -> ResponseHead:
    """The daemon's response head that `raw` is; `method` is what was asked, as HEAD answers have no body.

    Raises:
        HttpError: it breaks a rule, so that what follows cannot be framed.
    """
    line = _STATUS_LINE.match(raw)
    if line is None or len(raw) > MAX_HEAD_BYTES:
        raise HttpError(HttpCode.STATUS_LINE, "the daemon did not answer with HTTP/1.1", status=502)
    headers = _fields(raw, line.end())
    status = int(line[2])
    lengths: list[bytes] = []
    codings: list[bytes] = []
    connection: list[bytes] = []
    verbatim = line[1] == b"1"
    for name, value in headers:
        if name == b"content-length":
            lengths.append(value)
        elif name in _CODINGS:
            codings.append(value)
        elif name in _RESPONSE_HOP_BY_HOP:
            verbatim = False
            if name == b"connection":
                connection.append(value)
    options = _options(connection)
    framing, content_length = _response_framing(lengths, codings, status, method)
    return ResponseHead(
        status=status,
        reason=line[3] or b"",
        headers=headers,
        framing=framing,
        content_length=content_length,
        keep_alive=line[1] == b"1" and b"close" not in options and framing is not Framing.CLOSE,
        verbatim=verbatim,
    )


def media_type(value: bytes) -> bytes:
    """The lower-case `type/subtype` of a Content-Type, without parameters (as Go's mime package reads it)."""
    return value.partition(b";")[0].strip(b" \t").lower()


def connection_options(headers: tuple[Header, ...]) -> frozenset[bytes]:
    """The lower-case names that the message's `Connection` headers list."""
    return _options([value for name, value in headers if name == b"connection"])


def _fields(raw: bytes, start: int) -> tuple[Header, ...]:
    if _FIELDS.fullmatch(raw, start) is None:
        _refuse_bytes(raw)
        raise HttpError(
            HttpCode.HEADER,
            "a header line is not 'name: value'",
            hint="no folding, no blank before the colon",
        )
    fields = _FIELD.findall(raw, start)
    if len(fields) > MAX_HEADERS:
        raise HttpError(
            HttpCode.HEAD_TOO_LARGE,
            f"the request has {len(fields)} header lines",
            status=431,
            hint=f"at most {MAX_HEADERS}",
        )
    return tuple([(name.lower(), value.strip(b" \t")) for name, value in fields])


def _options(values: list[bytes]) -> frozenset[bytes]:
    if not values:
        return frozenset()
    return frozenset(option.strip(b" \t").lower() for option in b",".join(values).split(b","))


def _request_framing(lengths: list[bytes], codings: list[bytes]) -> tuple[int | None, bool]:
    if codings:
        if lengths:
            raise HttpError(
                HttpCode.TRANSFER_ENCODING,
                "the request has both Content-Length and Transfer-Encoding",
                hint="send one of them",
            )
        if codings != [b"chunked"]:
            raise HttpError(
                HttpCode.TRANSFER_ENCODING,
                f"the transfer coding {_shown(b', '.join(codings))} is not understood",
                status=501,
                hint="exactly 'Transfer-Encoding: chunked'",
            )
        return None, True
    if not lengths:
        return None, False
    return _length(lengths), False


def _response_framing(
    lengths: list[bytes], codings: list[bytes], status: int, method: str
) -> tuple[Framing, int]:
    if codings and (lengths or codings != [b"chunked"]):
        raise HttpError(HttpCode.TRANSFER_ENCODING, "the daemon's answer cannot be framed", status=502)
    length = _length(lengths) if lengths else 0
    if method == "HEAD" or status < 200 or status in (204, 304):
        return Framing.NONE, 0
    if codings:
        return Framing.CHUNKED, 0
    if lengths:
        return Framing.LENGTH, length
    return Framing.CLOSE, 0


def _length(values: list[bytes]) -> int:
    if len(values) != 1 or _DIGITS.fullmatch(values[0]) is None:
        raise HttpError(
            HttpCode.CONTENT_LENGTH,
            f"the Content-Length {_shown(b', '.join(values))} is not one decimal number",
            hint="send one Content-Length of digits only",
        )
    length = int(values[0])
    if length > MAX_BODY_BYTES:
        raise HttpError(
            HttpCode.CONTENT_LENGTH, f"the Content-Length {length} is beyond any body", status=413
        )
    return length


def _expects(values: list[bytes]) -> bool:
    if not values:
        return False
    if len(values) != 1 or values[0].lower() != b"100-continue":
        raise HttpError(
            HttpCode.EXPECT,
            f"the expectation {_shown(b', '.join(values))} cannot be met",
            status=417,
            hint="only 'Expect: 100-continue'",
        )
    return True


def _upgrade(values: list[bytes], options: frozenset[bytes]) -> bytes | None:
    if len(values) != 1 or b"upgrade" not in options:
        return None
    return values[0].lower()


def _refuse_request_line(raw: bytes) -> NoReturn:
    _refuse_bytes(raw)
    line = _ANY_REQUEST_LINE.match(raw)
    if line is None:
        raise HttpError(
            HttpCode.REQUEST_LINE,
            f"{_shown(raw.split(HEAD_END[:2], 1)[0])} is not a request line",
            hint="METHOD /path HTTP/1.1",
        )
    if line[3] != b"HTTP/1.1":
        raise HttpError(
            HttpCode.VERSION, f"{_shown(line[3])} is not spoken here", status=505, hint="send HTTP/1.1"
        )
    raise HttpError(
        HttpCode.TARGET,
        f"the request target {_shown(line[2])} is not a path",
        hint="origin-form only: it starts with '/'",
    )


def _refuse_bytes(raw: bytes, start: int = 0) -> None:
    """Raise the more telling error where the trouble is a line end or a control character."""
    bad = _BARE.search(raw, start)
    if bad is not None:
        raise HttpError(
            HttpCode.LINE_END,
            f"byte {bad[0][0]:#04x} at {bad.start()} of the head",
            hint="lines end with CR LF, and no other control characters are taken",
        )


def _head_too_large() -> HttpError:
    return HttpError(
        HttpCode.HEAD_TOO_LARGE,
        f"the head is larger than {MAX_HEAD_BYTES} bytes",
        status=431,
        hint="shorten the query or the headers",
    )


def _shown(value: bytes) -> str:
    return repr(value[:80].decode("latin-1"))
