"""Our own YAML documents, read strictly: one document, no repeated keys, checked by a schema. Pure.

Source: YAML 1.2 chapter 3.2.1.1 (keys are unique, which PyYAML does not check); JSON Schema 2020-12. The
schemas are package data beside this module.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import cast

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from base.errors import MalformedError

Setting = None | bool | int | float | str | Sequence["Setting"] | Mapping[str, "Setting"]


class _StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """SafeLoader, libyaml's where it is there, that refuses repeated keys and keys that are not strings."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        """As the parent's, but each key once, and a string."""
        seen: set[str] = set()
        for key_node, _value in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                message = f"key {key!r} is not a string"
                raise yaml.constructor.ConstructorError(None, None, message, key_node.start_mark)
            if key in seen:
                message = f"key {key!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, key_node.start_mark)
            seen.add(key)
        return cast("dict[Hashable, object]", super().construct_mapping(node, deep=deep))


def _load(text: str) -> tuple[yaml.Node | None, object]:
    """The one document as nodes, which know their places, and as a value."""
    loader = _StrictLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None, None
        _refuse_aliases(root, set())
        return root, loader.construct_document(root)
    finally:
        loader.dispose()


def _refuse_aliases(node: yaml.Node, seen: set[int]) -> None:
    """An alias is the node it names, met again: our documents need none, and nested ones have no bound."""
    if id(node) in seen:
        raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed", node.start_mark)
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_aliases(item, seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _refuse_aliases(key, seen)
            _refuse_aliases(value, seen)


def read_settings(raw: bytes, schema: str, source: str) -> Mapping[str, Setting]:
    """The document as a mapping that the schema accepts.

    Args:
        raw: the file's bytes.
        schema: file name of the schema beside this module.
        source: what to call the file in messages.

    Raises:
        MalformedError: with line, where YAML knows it, and the place in the document; all that is wrong with
            the shape at once.
    """
    try:
        root, value = _load(raw.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise MalformedError(f"{source} is not UTF-8 (byte {exc.start})") from exc
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise MalformedError(f"{source} is not YAML that can be read in one way: {_words(exc)}") from exc
    errors = sorted(
        _validator(schema).iter_errors(value), key=lambda error: [str(part) for part in error.path]
    )
    if errors:
        found = "; ".join(_place(error, root) for error in errors)
        raise MalformedError(
            f"{source}: {found}",
            hint="docs/operators.md has the keys; every file begins with 'schema_version: 1'",
        )
    return cast("Mapping[str, Setting]", value)


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(files(__package__).joinpath(schema).read_text(encoding="utf-8")))


def _words(exc: Exception) -> str:
    mark = getattr(exc, "problem_mark", None)
    words = getattr(exc, "problem", None) or str(exc) or type(exc).__name__
    return f"line {mark.line + 1}: {words}" if mark is not None else str(words)


def _place(error: ValidationError, root: yaml.Node | None) -> str:
    node, line = root, 1 if root is None else root.start_mark.line + 1
    pointer = ""
    for part in error.absolute_path:
        pointer += f"[{part}]" if isinstance(part, int) else f".{part}" if pointer else str(part)
        node = _child(node, part)
        if node is None:
            break
        line = node.start_mark.line + 1
    where = f"line {line}" + (f", {pointer}" if pointer else "")
    return f"{where}: {error.message}"


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return cast("yaml.Node", node.value[part])
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    return None
