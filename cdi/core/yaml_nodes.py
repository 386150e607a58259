"""YAML text as the located tree that go-yaml (version 2, strict) would decode, within fixed bounds. Pure.

libyaml's parser gives the events; everything after it follows go-yaml instead of PyYAML: only the first
document counts, an anchor may be defined again, a repeated key is an error (also one that a merge brings
in), keys become strings as Go prints them, and documents that consist mostly of aliases are refused. Where
go-yaml's result depends on Go's random map order, and where its scanner differs from libyaml's in a way that
cannot be told from the events, the text is refused. Source: YAML 1.1; behaviour compared with a real daemon.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import yaml

from cdi.core.go_scalars import MERGE_TAG, UINT64_MAX, Resolved, ScalarError, key_of_float, resolve
from cdi.core.go_text import GoText
from cdi.core.problems import ProblemCode, SpecError, SpecProblem

MAX_BYTES = 32 * 1024 * 1024
"""Largest text that is read at all; real specs are below 200 kB."""
MAX_DEPTH = 900
"""Deepest nesting. A valid spec nests eight levels; libyaml's own limit is 1,000 and go-yaml's 10,000."""
MAX_EXPANDED = 2_000_000
"""Most values after all aliases are followed, so that decoding stays bounded."""

_INT64_MAX = 2**63 - 1
_ESCAPE = re.compile(r"\\.", re.DOTALL)


class _Located(Protocol):
    """Something with a place in the text, counted from 0."""

    line: int
    column: int


class _Mark(_Located, Protocol):
    index: int


@dataclass(slots=True)
class ScalarNode:
    """A resolved scalar; `line` and `column` count from 0 as libyaml's do."""

    value: Resolved
    line: int
    column: int
    merges: bool = False
    size: int = 1


@dataclass(slots=True)
class SequenceNode:
    """A list."""

    line: int
    column: int
    items: "list[Node]" = field(default_factory=list)
    size: int = 1


@dataclass(slots=True)
class MappingNode:
    """A mapping with string keys; `keys` is where each stands, `typed` how go-yaml tells them apart."""

    line: int
    column: int
    entries: "dict[str, Node]" = field(default_factory=dict)
    keys: "dict[str, Node]" = field(default_factory=dict)
    typed: dict[tuple[str, Resolved], str] = field(default_factory=dict)
    size: int = 1


Node = ScalarNode | SequenceNode | MappingNode


@dataclass(slots=True)
class _Frame:
    """A collection that is being read; `flow` if written in brackets, `key` waits for its value."""

    node: SequenceNode | MappingNode
    flow: bool
    key: Node | None = None


def load(raw: bytes) -> Node | None:
    """The first document's root, None when there is no document at all.

    Raises:
        SpecError: no YAML, or go-yaml would refuse it, or it exceeds the bounds.
    """
    if len(raw) > MAX_BYTES:
        raise _error(f"larger than {MAX_BYTES} bytes", ProblemCode.TOO_LARGE, None)
    try:
        text = GoText(raw)
    except UnicodeError as exc:
        raise _error(f"not YAML: {exc}", ProblemCode.SYNTAX, None) from exc
    while True:
        try:
            return _Composer(text).compose()
        except yaml.MarkedYAMLError as exc:
            if not text.repair(exc):
                mark = exc.problem_mark or exc.context_mark
                raise _error(f"not YAML: {exc.problem or exc.context}", ProblemCode.SYNTAX, mark) from exc
        except (yaml.YAMLError, UnicodeError) as exc:
            reason = str(exc).partition("\n")[0]  # the rest says only that the text came from a string
            raise _error(f"not YAML: {reason}", ProblemCode.SYNTAX, None) from exc


def _error(message: str, code: ProblemCode, at: "_Located | None") -> SpecError:
    line, column = (None, None) if at is None else (at.line + 1, at.column + 1)
    return SpecError((SpecProblem(message=message, code=code, line=line, column=column),))


def _mark(event: yaml.Event) -> _Mark:
    """The event's start, which the parser always sets although its type allows otherwise."""
    if event.start_mark is None:
        raise _error("not YAML: an event without a place", ProblemCode.SYNTAX, None)
    return event.start_mark


class _Composer:
    """Builds the tree from events with a stack of its own, so that depth cannot exhaust Python's."""

    def __init__(self, text: GoText) -> None:
        self._text = text
        self._bangs = b"!" in text.raw
        self._slashes = b"\\/" in text.raw
        self._anchors: dict[str, Node] = {}
        self._open: set[int] = set()
        self._stack: list[_Frame] = []
        self._decoded = 0
        self._aliased = 0

    def compose(self) -> Node | None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        events: Iterator[yaml.Event] = yaml.parse(self._text.raw, Loader=loader)
        root: Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentEndEvent):
                break
            if isinstance(event, yaml.DocumentStartEvent):
                self._check_version(event)
                continue
            done = self._take(event)
            if done is not None:
                root = self._place(done) or root
        if root is not None and root.size > MAX_EXPANDED:
            raise _error("too many values", ProblemCode.ALIASES, root)
        return root

    def _check_version(self, event: yaml.DocumentStartEvent) -> None:
        if event.version not in (None, (1, 1)):
            raise _error(
                "incompatible YAML document: only %YAML 1.1 is read", ProblemCode.SYNTAX, event.start_mark
            )

    def _take(self, event: yaml.Event) -> Node | None:
        """Digest one event; the node that it completes, if any."""
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            node = self._stack.pop().node
            self._open.discard(id(node))
            return node
        return None

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise _error("nested too deep", ProblemCode.TOO_DEEP, event.start_mark)
        mark = _mark(event)
        node: SequenceNode | MappingNode = (
            SequenceNode(mark.line, mark.column)
            if isinstance(event, yaml.SequenceStartEvent)
            else MappingNode(mark.line, mark.column)
        )
        self._decoded += 1
        if event.anchor:
            self._anchors[event.anchor] = node
        self._open.add(id(node))
        self._stack.append(_Frame(node, flow=bool(event.flow_style)))

    def _scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        mark = _mark(event)
        plain = event.style in (None, "")
        tag = event.tag
        if tag is None and event.implicit[0] and self._non_specific(mark):
            tag = "!"
        if event.style == '"':
            self._check_escapes(event)
        if plain and "?" in event.value and self._stack and self._stack[-1].flow:
            # go-yaml ends a plain scalar between brackets at a `?`, and then finds no comma.
            raise _error("did not find expected ',' or bracket before '?'", ProblemCode.SYNTAX, mark)
        self._decoded += 1
        try:
            value = resolve(self._text.restore(event.value), tag=tag, plain=plain)
        except ScalarError as exc:
            raise _error(str(exc), ProblemCode.BAD_SCALAR, mark) from exc
        merges = event.value == "<<" and ((plain and tag is None) or tag == MERGE_TAG)
        node = ScalarNode(value, mark.line, mark.column, merges)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _non_specific(self, mark: _Mark) -> bool:
        """Whether the scalar bears the tag `!`, which libyaml's events swallow and go-yaml takes for text."""
        if not self._bangs:
            return False
        written = self._text.written(mark.index, mark.index + 200)
        return written.startswith("!") or (written.startswith("&") and " !" in written)

    def _check_escapes(self, event: yaml.ScalarEvent) -> None:
        r"""Refuse `\/`, which JSON and libyaml know and go-yaml does not."""
        if not self._slashes or event.start_mark is None or event.end_mark is None:
            return
        escapes = _ESCAPE.findall(self._text.written(event.start_mark.index, event.end_mark.index))
        if "\\/" in escapes:
            raise _error("found unknown escape character '/'", ProblemCode.SYNTAX, event.start_mark)

    def _alias(self, event: yaml.AliasEvent) -> Node:
        target = self._anchors.get(event.anchor or "")
        if target is None:
            raise _error(f"unknown anchor {event.anchor!r} referenced", ProblemCode.SYNTAX, event.start_mark)
        if id(target) in self._open:
            raise _error(
                f"anchor {event.anchor!r} value contains itself", ProblemCode.SYNTAX, event.start_mark
            )
        self._decoded += 1 + target.size
        self._aliased += target.size
        if (
            self._aliased > 100
            and self._decoded > 1000
            and self._aliased / self._decoded > _allowed_alias_ratio(self._decoded)
        ):
            raise _error("document contains excessive aliasing", ProblemCode.ALIASES, event.start_mark)
        if isinstance(target, ScalarNode) and target.merges:
            return ScalarNode(target.value, target.line, target.column)  # only a literal `<<` merges
        return target

    def _place(self, node: Node) -> Node | None:
        """Put a finished node into its parent; the node itself when it is the root."""
        if not self._stack:
            return node
        frame = self._stack[-1]
        parent = frame.node
        if isinstance(parent, SequenceNode):
            parent.items.append(node)
        elif frame.key is None:
            frame.key = node
            return None
        else:
            _add_entry(parent, frame.key, node)
            parent.size += 1
            frame.key = None
        parent.size += node.size
        return None


def _allowed_alias_ratio(decoded: int) -> float:
    """How much of a document may come from aliases: 99 % of a small one, 10 % of a huge one."""
    low, high = 400_000, 4_000_000
    if decoded <= low:
        return 0.99
    return 0.10 if decoded >= high else 0.99 - 0.89 * (decoded - low) / (high - low)


def _add_entry(mapping: MappingNode, key: Node, value: Node) -> None:
    if isinstance(key, ScalarNode) and key.merges:
        _merge(mapping, value)
        return
    if not isinstance(key, ScalarNode):
        raise _error("a list or mapping cannot be a key", ProblemCode.BAD_KEY, key)
    _set(mapping, _key_text(key), _typed(key), key, value)


def _merge(mapping: MappingNode, value: Node) -> None:
    """`<<`: bring in another mapping's entries, of several the last one's first; none may be there."""
    sources: list[Node] = list(reversed(value.items)) if isinstance(value, SequenceNode) else [value]
    for source in sources:
        if not isinstance(source, MappingNode):
            raise _error(
                "map merge requires map or sequence of maps as the value", ProblemCode.BAD_KEY, source
            )
        for typed, text in source.typed.items():
            _set(mapping, text, typed, source.keys[text], source.entries[text])


def _set(mapping: MappingNode, text: str, typed: tuple[str, Resolved], key: Node, value: Node) -> None:
    if typed in mapping.typed:
        raise _error(f"key {text!r} already set in map", ProblemCode.DUPLICATE_KEY, key)
    other = mapping.entries.get(text)
    if other is not None and not (isinstance(other, ScalarNode) and isinstance(value, ScalarNode)):
        # Go keeps either at random; between scalars, which only annotations have, the verdict is the same.
        raise _error(
            f"two keys are both read as {text!r}, and which one counts is left to chance",
            ProblemCode.AMBIGUOUS_KEY,
            key,
        )
    mapping.typed[typed] = text
    mapping.entries[text] = value
    mapping.keys[text] = key


def _typed(key: ScalarNode) -> tuple[str, Resolved]:
    """What go-yaml compares keys by: their type and value."""
    return type(key.value).__name__, key.value


def _key_text(key: ScalarNode) -> str:
    value = key.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return key_of_float(value)
    if value is None or not -(2**63) <= value <= _INT64_MAX:
        what = "null" if value is None else f"a number up to {UINT64_MAX}"
        raise _error(f"{what} cannot be a key", ProblemCode.BAD_KEY, key)
    return str(value)
