import pytest

from cdi.core.edits import DeviceNode
from cdi.core.library import Library
from cdi.core.names import QualifiedName
from cdi.core.resolve import HostNode, NodeId, NotANode, ResolveError, fill_from_host, own_nodes, resolve
from tests.cdi.hosts import FakeProbe, catalog, character

HEAD = "cdiVersion: 0.7.0\nkind: vv.com/dd\n"
HOST = FakeProbe(
    {
        "/dev/null": character(1, 3),
        "/dev/sda": HostNode(type="b", major=8, minor=0, mode=0o660),
        "/run/pipe": HostNode(type="p", major=0, minor=0, mode=0o640),
        "/dev/link": NotANode.SYMLINK,
        "/dev": NotANode.DIRECTORY,
    }
)


@pytest.mark.parametrize(
    ("node", "filled"),
    [
        (DeviceNode(path="/dev/null"), ("c", 1, 3)),
        (DeviceNode(path="/dev/x", host_path="/dev/null"), ("c", 1, 3)),
        (DeviceNode(path="/dev/null", minor=9), ("c", 1, 3)),
        (DeviceNode(path="/dev/null", major=235, minor=9), ("c", 235, 9)),
        (DeviceNode(path="/dev/null", type="c"), ("c", 1, 3)),
        (DeviceNode(path="/gone", type="c", major=195), ("c", 195, 0)),
        (DeviceNode(path="/gone", type="u", major=7, minor=1), ("u", 7, 1)),
        (DeviceNode(path="/dev/link", type="c", major=1, minor=3), ("c", 1, 3)),
        (DeviceNode(path="/dev/null", type="b", major=1), ("b", 1, 0)),
        (DeviceNode(path="/gone", type="p"), ("p", 0, 0)),
        (DeviceNode(path="/run/pipe"), ("p", 0, 0)),
        (DeviceNode(path="/dev/sda"), ("b", 8, 0)),
    ],
)
def test_fill_from_host(node, filled):
    found = fill_from_host(node, HOST)
    assert (found.type, found.major, found.minor) == filled
    assert (found.path, found.host_path, found.file_mode) == (node.path, node.host_path, None)


@pytest.mark.parametrize(
    "node",
    [
        DeviceNode(path="/gone"),
        DeviceNode(path="/gone", major=195, minor=1),
        DeviceNode(path="/gone", type="c"),
        DeviceNode(path="/dev/null", host_path="/gone"),
        DeviceNode(path="/dev/link"),
        DeviceNode(path="/dev"),
        DeviceNode(path="/dev/null", type="b"),
        DeviceNode(path="/dev/null", type="u"),
    ],
)
def test_nodes_that_cannot_be_made(node):
    with pytest.raises(ResolveError) as caught:
        fill_from_host(node, HOST)
    assert caught.value.unresolved == ()


@pytest.mark.parametrize(
    ("node", "mode"),
    [
        (DeviceNode(path="/dev/null"), 0o666),
        (DeviceNode(path="/dev/null", file_mode=0o600), 0o600),
        (DeviceNode(path="/dev/null", file_mode=0), 0),
        (DeviceNode(path="/dev/null", type="c", major=1), None),
    ],
)
def test_mode_comes_from_the_host_since_1_1_0(node, mode):
    assert fill_from_host(node, HOST, library=Library.V1_1_0).file_mode == mode


TWO = HEAD + (
    "devices:\n- {name: a, containerEdits: {env: [X=a], additionalGids: [1], intelRdt: {closID: a}}}\n"
    "- {name: b, containerEdits: {env: [X=b], hooks: [{hookName: prestart, path: /b}]}}\n"
    "containerEdits: {env: [T=1], intelRdt: {closID: t}, mounts: [{hostPath: /m, containerPath: /m}]}\n"
)
OTHER = (
    "cdiVersion: 0.5.0\nkind: ww.com/dd\ndevices: [{name: a, containerEdits: {env: [X=w]}}]\n"
    "containerEdits: {env: [T=w]}\n"
)


@pytest.mark.parametrize(
    ("request_", "env"),
    [
        ((), ()),
        (("vv.com/dd=a",), ("T=1", "X=a")),
        (("vv.com/dd=b", "vv.com/dd=a"), ("T=1", "X=b", "X=a")),
        (("vv.com/dd=a", "ww.com/dd=a", "vv.com/dd=a"), ("T=1", "X=a", "T=w", "X=w", "X=a")),
    ],
)
def test_order_of_edits(request_, env):
    found = resolve(request_, catalog(("1", 0, TWO), ("2", 0, OTHER)), HOST)
    assert found.edits.env == env
    assert found.names == request_


def test_all_fields_are_merged():
    edits = resolve(["vv.com/dd=a", QualifiedName.parse("vv.com/dd=b")], catalog(("1", 0, TWO)), HOST).edits
    assert edits.intel_rdt.clos_id == "a"
    assert edits.additional_gids == (1,)
    assert [hook.path for hook in edits.hooks] == ["/b"]
    assert [mount.host_path for mount in edits.mounts] == ["/m"]


def test_every_unknown_name_is_reported():
    with pytest.raises(ResolveError) as caught:
        resolve(["vv.com/dd=zz", "vv.com/dd=a", "foo", "foo"], catalog(("1", 0, TWO)), HOST)
    assert caught.value.unresolved == ("vv.com/dd=zz", "foo", "foo")


@pytest.mark.parametrize(
    ("nodes", "top", "own"),
    [
        ("{path: /dev/null}", "", [NodeId(path="/dev/null", type="c", major=1, minor=3)]),
        (
            "{path: /dev/x, hostPath: //dev/./null}",
            "",
            [NodeId(path="/dev/null", type="c", major=1, minor=3)],
        ),
        (
            "{path: /dev/null}, {path: /dev/sda}",
            "{path: /dev/null}",
            [NodeId(path="/dev/sda", type="b", major=8, minor=0)],
        ),
        ("{path: /dev/null}", "{path: /dev/y, hostPath: /dev/null}", []),
        ("{path: /gone}", "", [NodeId(path="/gone")]),
        ("{path: /gone, major: 195, minor: 2}", "", [NodeId(path="/gone", major=195, minor=2)]),
        ("{path: /gone, type: u, major: 195}", "", [NodeId(path="/gone", type="c", major=195, minor=0)]),
        ("{path: /dev/link}", "", [NodeId(path="/dev/link")]),
        (
            "{path: /dev/null}, {path: /dev/y, hostPath: /dev/null}",
            "",
            [NodeId(path="/dev/null", type="c", major=1, minor=3)],
        ),
    ],
)
def test_own_nodes(nodes, top, own):
    own_edits, top_edits = f"{{deviceNodes: [{nodes}]}}", f"{{deviceNodes: [{top}]}}"
    text = f"{HEAD}devices: [{{name: a, containerEdits: {own_edits}}}]\ncontainerEdits: {top_edits}\n"
    device = catalog(("1", 0, text)).devices[QualifiedName.parse("vv.com/dd=a")]
    assert list(own_nodes(device, HOST)) == own
