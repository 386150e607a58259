"""What go-yaml (version 2) takes a scalar for, and how Go prints numbers. Pure.

The CDI library reads specs through sigs.k8s.io/yaml, which lets go-yaml v2 decode YAML into untyped values,
turns those into JSON and decodes that into the spec's types. So a spec's text is first resolved by YAML
1.1's rules as go-yaml has them (`on` is a boolean, `010` is eight, `1:30` and dates stay text) and, where a
string is wanted, printed again as Go prints it. Source: YAML 1.1 type repository; Go's strconv and
encoding/json documentation; behaviour compared with a real daemon.
"""

import base64
import binascii
import math
import re
import struct

Resolved = str | int | float | bool | None

_TAG = "tag:yaml.org,2002:"
STR_TAG = _TAG + "str"
MERGE_TAG = _TAG + "merge"
_BINARY_TAG = _TAG + "binary"
_RESOLVABLE = {_TAG + kind: kind for kind in ("bool", "int", "float", "null", "timestamp")}

_WORDS: dict[str, Resolved] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_STYLE_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_GO_FRACTION = re.compile(r"\.[0-9](?:_?[0-9])*(?:[eE][-+]?[0-9](?:_?[0-9])*)?")
_GO_INTEGER = re.compile(r"([-+]?)(?:0[bB]([01]+)|0[oO]([0-7]+)|0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:(?:[Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2}))"
    r"|(?: [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?))?"
)
_MAX_DIGITS = 400
"""Longer digit strings overflow every integer type; Python would take long to convert them."""

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1


class ScalarError(ValueError):
    """An explicit tag that does not fit its text."""


def resolve(text: str, *, tag: str | None, plain: bool) -> Resolved:
    """The value of a scalar.

    Args:
        text: its content, escapes already undone.
        tag: its explicit tag in full form, if any; `!` alone forces text.
        plain: whether it was written without quotes and not as a block.

    Raises:
        ScalarError: the explicit tag does not fit.
    """
    if tag is None:
        return _implicit(text) if plain else text
    if tag == _BINARY_TAG:
        return _binary(text)
    kind = _RESOLVABLE.get(tag)
    return text if kind is None else _tagged(text, kind)


def _tagged(text: str, kind: str) -> Resolved:
    if kind == "timestamp":
        if _TIMESTAMP.fullmatch(text):
            return text
        raise ScalarError(f"cannot decode {text!r} as a !!timestamp")
    value = _implicit(text)
    found = _kind(value)
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool) and value <= INT64_MAX:
        return float(value)
    if found != kind:
        raise ScalarError(f"cannot decode !!{found} {text!r} as a !!{kind}")
    return value


def _kind(value: Resolved) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    return "float" if isinstance(value, float) else "str"


def _implicit(text: str) -> Resolved:
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first == ".":
        return _float(text.replace("_", ""), text) if _GO_FRACTION.fullmatch(text) else text
    if first in "+-0123456789":
        return _number(text)
    return text


def _number(text: str) -> Resolved:
    digits = text.replace("_", "")
    integer = _go_integer(digits)
    if integer is not None:
        return integer
    return _float(digits, text) if _STYLE_FLOAT.fullmatch(digits) else text


def _go_integer(digits: str) -> int | None:
    """What Go's ParseInt and then ParseUint make of the text with base 0, or None."""
    match = _GO_INTEGER.fullmatch(digits)
    if match is None or len(digits) > _MAX_DIGITS:
        return None
    sign, binary, octal, hexadecimal, old_octal, decimal = match.groups()
    for group, base in ((binary, 2), (octal, 8), (hexadecimal, 16), (decimal, 10)):
        if group is not None:
            value = int(group, base)
            break
    else:
        value = int(old_octal or "0", 8)
    value = -value if sign == "-" else value
    if INT64_MIN <= value <= INT64_MAX or (not sign and value <= UINT64_MAX):
        return value
    return None


def _float(digits: str, text: str) -> float | str:
    """The digits as a float; the text itself where they exceed every float."""
    value = float(digits)
    return text if math.isinf(value) else value


def _binary(text: str) -> str:
    compact = text.replace("\r", "").replace("\n", "")
    try:
        data = base64.b64decode(compact, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ScalarError("!!binary value contains invalid base64 data") from exc
    return go_text(data)


def go_text(data: bytes) -> str:
    """Bytes as Go's JSON encoder writes them: each byte that is not part of valid UTF-8 becomes U+FFFD."""
    return "".join(
        "\ufffd" if "\udc80" <= char <= "\udcff" else char for char in data.decode("utf-8", "surrogateescape")
    )


def string_of(value: float | bool) -> str:
    """A number or boolean where a string is wanted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else format_float(value)


def format_float(value: float) -> str:
    """Go's `strconv.FormatFloat(value, 'g', -1, 32)`: single precision, exponent outside 1e-4 to 1e+06."""
    if math.isnan(value):
        return "NaN"
    single = _single(value)
    if math.isinf(single):
        return "+Inf" if single > 0 else "-Inf"
    for precision in range(1, 10):
        text = f"{single:.{precision}g}"
        if _single(float(text)) == single:
            return _go_g(text)
    return _go_g(repr(single))


def _single(value: float) -> float:
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def key_of_float(value: float) -> str:
    """A float used as a mapping key: like any string, but infinities and NaN as YAML writes them."""
    text = format_float(value)
    return {"NaN": ".nan", "+Inf": ".inf", "-Inf": "-.inf"}.get(text, text)


def json_number(value: float) -> str:
    """A number as Go's JSON encoder writes it; a whole float below 1e21 has no point or exponent."""
    if isinstance(value, int):
        return str(value)
    negative, digits, exponent = _decompose(repr(value))
    sign = "-" if negative else ""
    if digits == "0":
        return f"{sign}0"
    if -6 <= exponent < 21:
        return sign + _plain(digits, exponent)
    return f"{sign}{_mantissa(digits)}e{exponent:+d}"


def _go_g(text: str) -> str:
    negative, digits, exponent = _decompose(text)
    sign = "-" if negative else ""
    if digits == "0":
        return f"{sign}0"
    if exponent < -4 or exponent >= 6:
        magnitude = abs(exponent)
        return f"{sign}{_mantissa(digits)}e{'-' if exponent < 0 else '+'}{magnitude:02d}"
    return sign + _plain(digits, exponent)


def _decompose(text: str) -> tuple[bool, str, int]:
    """Sign, significant digits without trailing zeros, and the decimal exponent of the first digit."""
    negative = text.startswith("-")
    mantissa, _, exponent_text = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(exponent_text or "0") + len(whole) - 1 - (len(whole + fraction) - len(digits))
    stripped = digits.rstrip("0")
    return (negative, stripped, exponent) if stripped else (negative, "0", 0)


def _mantissa(digits: str) -> str:
    return digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")


def _plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits + "0" * (exponent + 1 - len(digits))
    return f"{digits[: exponent + 1]}.{digits[exponent + 1 :]}"
