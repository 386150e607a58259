import codecs

import pytest

from cdi.core.go_text import MAX_REPAIRS
from cdi.core.problems import SpecError
from cdi.core.yaml_nodes import SequenceNode, load


def values(text):
    node = load(text if isinstance(text, bytes) else text.encode())
    assert isinstance(node, SequenceNode)
    return [item.value for item in node.items]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[a:]", ["a:"]),
        ("[a:, b::, c]", ["a:", "b::", "c"]),
        ("[a:b, 'c:', \"d:\"]", ["a:b", "c:", "d:"]),
        ('["it\\\'s", "\\\\\'"]', ["it's", "\\'"]),
        ('[a:, "\\\'", b:]', ["a:", "'", "b:"]),
        ("['\\', \\']", ["\\", "\\'"]),
        ("[\uf8d0:, \uf8d1]", ["\uf8d0:", "\uf8d1"]),
        (codecs.BOM_UTF8 + b"[\xc3\xa9:, '\\/', ! 5]", ["é:", "\\/", "5"]),
        ("[a:, \U0001f600:, ! 5]".encode("utf-16"), ["a:", "\U0001f600:", "5"]),
    ],
)
def test_read_as_go_reads_it(text, wanted):
    assert values(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "[a:[b]]",
        "[a:?]",
        '["\\q"]',
        "[" + "a:, " * (MAX_REPAIRS + 1) + "]",
        codecs.BOM_UTF16_LE + b"a",
        "[a:, \\uf8d0" + "".join(chr(code) for code in range(0xF8D0, 0xF8F0)) + "]",
        "[a:]" + " " * 1024 * 1024,
    ],
)
def test_refused(text):
    with pytest.raises(SpecError):
        load(text if isinstance(text, bytes) else text.encode())


def test_places_do_not_move():
    node = load(b'["\\\'", x:, y]')
    assert isinstance(node, SequenceNode)
    assert [item.column for item in node.items] == [1, 7, 11]
