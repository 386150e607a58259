"""JSON as dockerd's decoder reads it, or not at all. Pure.

Source: facts page on gates, section 3.1 (Go's encoding/json driven with raw bytes). Where Go is lenient in a
way that lets two readers disagree (repeated keys, trailing bytes, invalid UTF-8, lone surrogates), the bytes
are refused; where it is lenient in its field names (`structs.struct`), they are read as Go reads them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import cast

import jiter

from base.errors import MalformedError

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
"""A decoded value; arrays are `list`, objects `dict`."""

MAX_DEPTH = 32
"""Deepest nesting in a request; Docker's own API needs eight levels, Go's decoder stops at 10,000."""

MAX_BODY_BYTES = 1024 * 1024


def decode(raw: bytes) -> Json:
    """The one JSON value that these bytes are.

    jiter refuses repeated keys at every level, NaN and Infinity, a byte order mark, invalid UTF-8, lone
    surrogates, bytes after the value, control characters in strings and nesting beyond 200 (tests hold it to
    each). It gives floats for `1.0` and `1e3` and unbounded integers; the typed readers refuse those.

    Raises:
        MalformedError: these bytes are not exactly one such value, or are too many.
    """
    if len(raw) > MAX_BODY_BYTES:
        raise MalformedError(f"the body is larger than {MAX_BODY_BYTES} bytes")
    try:
        value = jiter.from_json(raw, catch_duplicate_keys=True, allow_inf_nan=False, cache_mode="keys")
    except (ValueError, RecursionError) as exc:
        raise MalformedError(f"the body is not JSON that can be read in one way: {exc}") from exc
    return cast("Json", value)


def encode(value: Json) -> bytes:
    """The canonical bytes of a value: ASCII, no spaces, keys in the order given."""
    return _ENCODE(value).encode("ascii")


_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def check_depth(value: Json, limit: int = MAX_DEPTH) -> None:
    """Refuse a value that is nested deeper than `limit`.

    Known fields have a fixed depth; this is for values that are dropped, so that depth is one rule for all.

    Raises:
        MalformedError: it is.
    """
    level: list[Json] = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
        if not level:
            return
    raise MalformedError(f"the body is nested deeper than {limit} levels")
