import pytest
from hypothesis import assume, given, settings

from cdi.core.problems import ProblemCode, SpecError
from cdi.core.yaml_nodes import MAX_DEPTH, MappingNode, ScalarNode, SequenceNode, load
from tests.strategies import json_trees, untrusted_bytes


def plain(node):
    if isinstance(node, MappingNode):
        return {key: plain(value) for key, value in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return node.value if node is not None else None


def refused(text):
    with pytest.raises(SpecError) as caught:
        load(text.encode())
    return caught.value.problems[0].code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: [1, x, '1']", {"a": [1, "x", "1"]}),
        ("1: a\n2.0: b\non: c", {"1": "a", "2": "b", "true": "c"}),
        ("a: &x {b: c}\nd: *x", {"a": {"b": "c"}, "d": {"b": "c"}}),
        ("a: {<<: {b: c}, d: e}", {"a": {"b": "c", "d": "e"}}),
        ("a: {<<: [{b: c}, {f: g}]}", {"a": {"b": "c", "f": "g"}}),
        ("a: {'<<': x}", {"a": {"<<": "x"}}),
        ("a: &m <<\nb: {*m : c}", {"a": "<<", "b": {"<<": "c"}}),
        ("&a ! 5", "5"),
        ("! 5", "5"),
        ("a\n---\nb", "a"),
    ],
)
def test_load(text, value):
    assert plain(load(text.encode())) == value


def test_places_are_kept():
    root = load(b"a:\n  - b\n")
    assert isinstance(root, MappingNode)
    item = root.entries["a"].items[0]
    assert isinstance(item, ScalarNode)
    assert (item.line, item.column, root.keys["a"].line, root.entries["a"].column) == (1, 4, 0, 2)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * (MAX_DEPTH + 5), ProblemCode.TOO_DEEP),
        ("{a: " * (MAX_DEPTH + 5), ProblemCode.TOO_DEEP),
        ("a: 1\na: 2", ProblemCode.DUPLICATE_KEY),
        ("{<<: {a: 1}, a: 2}", ProblemCode.DUPLICATE_KEY),
        ("{<<: [{a: 1}, {a: 2}]}", ProblemCode.DUPLICATE_KEY),
        ("{1: [a], '1': b}", ProblemCode.AMBIGUOUS_KEY),
        ("{[a]: b}", ProblemCode.BAD_KEY),
        ("{null: b}", ProblemCode.BAD_KEY),
        ("{<<: 1}", ProblemCode.BAD_KEY),
        ("&a [*a]", ProblemCode.SYNTAX),
        ("*a", ProblemCode.SYNTAX),
        ("[a?]", ProblemCode.SYNTAX),
        ('"\\/"', ProblemCode.SYNTAX),
        ("!!int x", ProblemCode.BAD_SCALAR),
    ],
)
def test_refused(text, code):
    assert refused(text) == code


def test_text_that_only_looks_like_an_escape_is_kept():
    assert plain(load(b"[\"\\\\/\", '\\/', \\/]")) == ["\\/", "\\/", "\\/"]


@pytest.mark.parametrize("count", [98, 5000])
def test_moderate_aliases_are_followed(count):
    node = load(b"a: &a x\nb: [" + b"*a, y, " * count + b"]")
    assert node is not None
    assert len(plain(node)["b"]) == 2 * count


@given(json_trees)
def test_json_is_read_as_json(tree):
    import json  # noqa: PLC0415 - used once

    text = json.dumps(tree, ensure_ascii=False, allow_nan=False) if _finite(tree) else "null"
    assume(not set(text) & set("\x85\u2028\u2029"))  # YAML 1.1 folds these line breaks
    try:
        found = plain(load(text.encode()))
    except SpecError:
        return  # characters that YAML does not allow
    assert _numbers(found) == _numbers(json.loads(text))


def _finite(tree):
    if isinstance(tree, dict):
        return all(map(_finite, tree.values()))
    if isinstance(tree, list):
        return all(map(_finite, tree))
    return not isinstance(tree, float) or abs(tree) < 1e300


def _numbers(tree):
    """Numbers as floats: YAML may read a long integer as one."""
    if isinstance(tree, dict):
        return {key: _numbers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return list(map(_numbers, tree))
    return float(tree) if isinstance(tree, int) and not isinstance(tree, bool) else tree


@settings(max_examples=200)
@given(untrusted_bytes)
def test_load_is_total(raw):
    try:
        load(raw)
    except SpecError as error:
        problem = error.problems[0]
    else:
        return
    assert problem.message
