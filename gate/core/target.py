"""Request targets: read in exactly one way, or not at all. Pure.

Source: facts page on gates, sections 3.2 and 3.3 (what Go's router and form parser do); RFC 9112 section
3.2.1 (origin-form), RFC 3986 section 2.1 (percent-encoding). The rule: one decode, no second meaning, and the
daemon gets a target rebuilt from what was read.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import quote

from base.errors import MalformedError

MAX_AUDITED_API = "1.51"
"""The newest API version whose routes and fields the tables here were checked against."""

MAX_TARGET_BYTES = 64 * 1024

OBJECT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}\Z")
"""Names and ids of containers, volumes and execs, by Docker's grammar; nothing else can exist."""

_PLAIN_TARGET = re.compile(rb"/[!-~]*\Z")
_PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9_.:@+\-]+\Z")
_VERSION = re.compile(r"v(1\.[0-9]{2})\Z")
_VERSION_LIKE = re.compile(r"[vV][0-9.]+\Z")
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_SAFE_IN_PATH = "/:@+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target taken apart.

    `segments` are decoded once; one with a slash in it came with an encoded one, which only image names may.
    """

    api_version: str | None
    segments: tuple[str, ...]
    query: bytes


def parse_target(target: bytes) -> Target:
    """Take an origin-form target apart.

    Raises:
        MalformedError: it is not origin-form ASCII, or has an empty or dot segment, a bad or repeated
            escape, a backslash, a control character, or an odd version prefix.
    """
    if len(target) > MAX_TARGET_BYTES or not _PLAIN_TARGET.match(target) or b"#" in target:
        raise MalformedError("the request target is not a plain path")
    path, _, query = target.partition(b"?")
    text = path.decode("ascii")
    if text == "/networks/":
        text = "/networks"  # the one path that the daemon also knows with a slash at its end
    parts = text[1:].split("/")
    # An empty last segment is a path like any other, which no endpoint has.
    segments = (*map(_segment, parts[:-1]), _segment(parts[-1]) if parts[-1] else "")
    version = None
    if matched := _VERSION.match(segments[0]):
        version = matched.group(1)
        segments = segments[1:]
    elif _VERSION_LIKE.match(segments[0]):
        raise MalformedError(f"API version {segments[0]} is not written as v1.NN")
    if not segments or not segments[0]:
        raise MalformedError("the request target names no endpoint")
    return Target(api_version=version, segments=segments, query=query)


def _segment(part: str) -> str:
    if _PLAIN_SEGMENT.match(part) and part not in {".", ".."}:
        return part
    decoded = _unescape(part.encode("ascii"))
    if not decoded or decoded in {b".", b".."}:
        raise MalformedError("the path has an empty or dot segment")
    if b"\\" in decoded or not all(0x20 <= byte < 0x7F for byte in decoded):
        raise MalformedError("the path has a backslash, control or non-ASCII character")
    return decoded.decode("ascii")


def _unescape(raw: bytes) -> bytes:
    """Percent-decoding, once.

    Raises:
        MalformedError: a percent sign without two hexadecimal digits after it.
    """
    if b"%" not in raw:
        return raw
    if raw.count(b"%") != len(_PERCENT.findall(raw)):
        raise MalformedError("a percent escape is not followed by two hexadecimal digits")
    return _PERCENT.sub(lambda found: bytes((int(found.group(1), 16),)), raw)


def parse_query(
    raw: bytes, *, single: Collection[str], multi: Collection[str]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The known pairs of a query in their order, and the unknown keys, which are dropped.

    Go takes the first of two equal keys and Python's usual reader the last, so a repeated key is refused
    unless the endpoint takes several; Go refuses or ignores `;` depending on the endpoint, so it is refused.

    Raises:
        MalformedError: a bad escape, `;`, bytes that are not UTF-8, NUL, or a repeated key.
    """
    if not raw:
        return (), ()
    if b";" in raw:
        raise MalformedError("the query has a semicolon")
    pairs: list[tuple[str, str]] = []
    seen: set[str] = set()
    dropped: list[str] = []
    for part in raw.split(b"&"):
        if not part:
            continue
        name, _, value = part.partition(b"=")
        key = _text(name)
        if key in multi:
            pairs.append((key, _text(value)))
        elif key not in single:
            _text(value)
            dropped.append(key)
        elif key in seen:
            raise MalformedError(f"query key {key} is given twice")
        else:
            seen.add(key)
            pairs.append((key, _text(value)))
    return tuple(pairs), tuple(dict.fromkeys(dropped))


def _text(raw: bytes) -> str:
    try:
        text = _unescape(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise MalformedError("the query is not UTF-8") from exc
    if "\0" in text:
        raise MalformedError("the query has a NUL character")
    return text


def build_target(api_version: str | None, path: str, query: Iterable[tuple[str, str]]) -> bytes:
    """The canonical target: version, escaped path (its slashes stay), escaped query."""
    prefix = f"/v{api_version}" if api_version else ""
    target = prefix + quote(path, safe=_SAFE_IN_PATH)
    encoded = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query)
    return f"{target}?{encoded}".encode("ascii") if encoded else target.encode("ascii")
