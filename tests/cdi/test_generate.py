import pytest

from cdi.core.generate import NamedNode, amd_spec, dri_spec
from cdi.core.library import Library
from cdi.core.model import Spec
from cdi.core.resolve import HostNode
from cdi.core.spec import encode_spec, engines_refusing, parse_spec


def node(name: str, mode: int = 0o660, gid: int = 104) -> NamedNode:
    return NamedNode(
        name=name, path=f"/dev/{name}", node=HostNode(type="c", major=226, minor=1, mode=mode, gid=gid)
    )


def test_nothing_makes_no_file() -> None:
    assert dri_spec([]) is None
    assert amd_spec(node("kfd"), []) is None


@pytest.mark.parametrize(
    "spec",
    [
        dri_spec([node("renderD128"), node("renderD129", gid=44)]),
        dri_spec([node("renderD128", mode=0o666)]),
        amd_spec(node("kfd"), [node("gpu0"), node("gpu1")]),
        amd_spec(node("kfd", mode=0o666), [node("gpu0", mode=0o666)]),
    ],
)
def test_every_library_that_knows_groups_loads_it(spec: Spec) -> None:
    raw = encode_spec(spec)
    assert parse_spec(raw) == spec
    groups = b"additionalGids" in raw
    assert set(engines_refusing(raw)) == ({Library.V0_6_2} if groups else set())
    assert b"major" not in raw


def test_groups_are_those_of_nodes_that_not_everybody_opens() -> None:
    spec = dri_spec([node("a"), node("b", mode=0o666), node("c", gid=0), node("d", mode=0o664)])
    assert spec is not None
    assert [each.container_edits.additional_gids for each in spec.devices] == [(104,), (), (), (104,)]
    assert [each.container_edits.device_nodes[0].gid for each in spec.devices] == [104, None, None, 104]


def test_amd_cards_share_the_compute_node() -> None:
    spec = amd_spec(node("kfd", gid=109), [node("gpu0"), node("gpu1", gid=44)])
    assert spec is not None
    assert [each.path for each in spec.container_edits.device_nodes] == ["/dev/kfd"]
    assert spec.container_edits.additional_gids == (109,)
    opened = {each.name: [n.path for n in each.container_edits.device_nodes] for each in spec.devices}
    assert opened == {"gpu0": ["/dev/gpu0"], "gpu1": ["/dev/gpu1"], "all": ["/dev/gpu0", "/dev/gpu1"]}
    assert spec.devices[2].container_edits.additional_gids == (44, 104)
