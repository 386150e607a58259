"""Decoding a located tree into a spec's fields as Go's encoding/json does it, strictly. Pure.

sigs.k8s.io/yaml prints the YAML tree as JSON, keys in byte order, and lets encoding/json decode that with
unknown fields disallowed. So field names are matched without regard to case, several spellings of one field
are decoded one after the other into the same value (structs merge, list elements merge by position, the last
scalar wins), `null` empties pointers, lists and maps and leaves everything else as it is, and numbers must
fit their type. Source: Go's encoding/json documentation; behaviour compared with a real daemon.
"""

import re
from dataclasses import dataclass, field

from cdi.core.fields import Flag, GoType, Number, Slice, Struct, Text, TextMap, fold
from cdi.core.go_scalars import json_number, string_of
from cdi.core.problems import ProblemCode, SpecProblem
from cdi.core.yaml_nodes import MappingNode, Node, ScalarNode, SequenceNode

Path = tuple["Path", str | int] | None
"""Where a value lies: the path of what holds it, and its key or index there."""

_INTEGER = re.compile(r"-?[0-9]+")


@dataclass(slots=True)
class GoSlice:
    """A list of which `length` elements count; Go finds what lay behind them again when the list grows."""

    backing: "list[Decoded]" = field(default_factory=list)
    length: int = 0

    @property
    def items(self) -> "list[Decoded]":
        """The elements that count."""
        return self.backing[: self.length]


Decoded = str | bool | int | None | GoSlice | dict[str, "Decoded"]


class Decoder:
    """Decodes one tree; `problems` collects everything that Go would refuse."""

    def __init__(self) -> None:
        self.problems: list[SpecProblem] = []

    def decode(self, node: Node, go_type: GoType, old: Decoded, path: Path) -> Decoded:
        """The value of `node` decoded into a variable that holds `old`."""
        if isinstance(node, ScalarNode) and node.value is None:
            return _null(go_type, old)
        match go_type:
            case Text():
                value = self._text(node, old, path)
            case Struct():
                value = self._struct(node, go_type, old, path)
            case Slice():
                value = self._slice(node, go_type, old, path)
            case Number():
                value = self._number(node, go_type, old, path)
            case Flag():
                value = self._flag(node, old, path)
            case TextMap():
                value = self._text_map(node, old, path)
        return value

    def _mismatch(self, node: Node, wanted: str, old: Decoded, path: Path) -> Decoded:
        self._add(f"{_describe(node)} where {wanted} is needed", ProblemCode.WRONG_TYPE, node, path)
        return old

    def _add(self, message: str, code: ProblemCode, node: Node, path: Path) -> None:
        self.problems.append(
            SpecProblem(
                message=message, code=code, line=node.line + 1, column=node.column + 1, pointer=pointer(path)
            )
        )

    def _text(self, node: Node, old: Decoded, path: Path) -> Decoded:
        if isinstance(node, ScalarNode) and node.value is not None:
            return node.value if isinstance(node.value, str) else string_of(node.value)
        return self._mismatch(node, "a string", old, path)

    def _flag(self, node: Node, old: Decoded, path: Path) -> Decoded:
        if isinstance(node, ScalarNode) and isinstance(node.value, bool):
            return node.value
        return self._mismatch(node, "true or false", old, path)

    def _number(self, node: Node, go_type: Number, old: Decoded, path: Path) -> Decoded:
        if not isinstance(node, ScalarNode) or isinstance(node.value, bool | str) or node.value is None:
            return self._mismatch(node, "a whole number", old, path)
        text = (
            json_number(node.value) if node.value == node.value and abs(node.value) < 2**70 else "too large"
        )
        if not _INTEGER.fullmatch(text) or (text == "-0" and go_type.low == 0):
            self._add(f"{text} is no {go_type.go_type}", ProblemCode.WRONG_TYPE, node, path)
            return old
        number = int(text)
        if not go_type.low <= number <= go_type.high:
            self._add(f"{text} does not fit {go_type.go_type}", ProblemCode.OUT_OF_RANGE, node, path)
            return old
        return number

    def _struct(self, node: Node, go_type: Struct, old: Decoded, path: Path) -> Decoded:
        if not isinstance(node, MappingNode):
            return self._mismatch(node, f"a mapping ({go_type.go_type})", old, path)
        values: dict[str, Decoded] = old if isinstance(old, dict) else {}
        keys = list(node.entries)
        if len({fold(key) for key in keys}) < len(keys):
            keys.sort()  # Go's JSON encoder writes keys in byte order; the last spelling of a field wins
        for key in keys:
            known = go_type.folded.get(fold(key))
            if known is None:
                self._add(f"unknown field {key!r}", ProblemCode.UNKNOWN_FIELD, node.keys[key], (path, key))
                continue
            name, field_type = known
            old_value = values[name] if name in values else zero(field_type)
            values[name] = self.decode(node.entries[key], field_type, old_value, (path, key))
        return values

    def _slice(self, node: Node, go_type: Slice, old: Decoded, path: Path) -> Decoded:
        if not isinstance(node, SequenceNode):
            return self._mismatch(node, "a list", old, path)
        if not node.items:
            return GoSlice()
        decoded = old if isinstance(old, GoSlice) else GoSlice()
        for index, item in enumerate(node.items):
            if index == len(decoded.backing):
                decoded.backing.append(zero(go_type.element))
            decoded.backing[index] = self.decode(item, go_type.element, decoded.backing[index], (path, index))
        decoded.length = len(node.items)
        return decoded

    def _text_map(self, node: Node, old: Decoded, path: Path) -> Decoded:
        if not isinstance(node, MappingNode):
            return self._mismatch(node, "a mapping of strings", old, path)
        values: dict[str, Decoded] = old if isinstance(old, dict) else {}
        for key in node.entries:
            values[key] = self.decode(node.entries[key], Text(), "", (path, key))
        return values


def zero(go_type: GoType) -> Decoded:
    """The value that a Go variable of this type starts with."""
    match go_type:
        case Text():
            return ""
        case Flag():
            return False
        case Number(pointer=pointer):
            return None if pointer else 0
        case Struct(pointer=pointer):
            return None if pointer else {}
        case Slice() | TextMap():
            return None


def _null(go_type: GoType, old: Decoded) -> Decoded:
    match go_type:
        case Slice() | TextMap() | Struct(pointer=True) | Number(pointer=True):
            return None
        case _:
            return old


def pointer(path: Path) -> str:
    """The path as a JSON pointer."""
    tokens: list[str] = []
    while path is not None:
        path, token = path
        tokens.append(str(token).replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{token}" for token in reversed(tokens))


def _describe(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    value = node.value
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"the text {value[:40]!r}" if isinstance(value, str) else f"the number {value}"
