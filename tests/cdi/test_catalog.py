import pytest

from cdi.core.names import QualifiedName
from tests.cdi.hosts import catalog, gpus

UUIDS = {0: "GPU-1a2b0000-5c1e-4d2a-9b7f-a0c01a2b0000", 1: "GPU-1a2b0001-5c1e-4d2a-9b7f-a0c01a2b0001"}


def spec(*names, kind="vv.com/dd", env="A=1"):
    devices = "".join(f"- {{name: {name}, containerEdits: {{env: [{env}]}}}}\n" for name in names)
    return f"cdiVersion: 0.6.0\nkind: {kind}\ndevices:\n{devices}"


def name(text):
    return QualifiedName.parse(text)


@pytest.mark.parametrize(
    ("files", "devices", "errors"),
    [
        ([("e/a", 0, spec("a", "b"))], {"a": "e/a", "b": "e/a"}, set()),
        ([("e/a", 0, spec("a")), ("r/a", 1, spec("a"))], {"a": "r/a"}, set()),
        ([("e/a", 0, spec("a", "b")), ("r/a", 1, spec("a"))], {"a": "r/a", "b": "e/a"}, set()),
        ([("e/a", 0, spec("a", "b")), ("e/b", 0, spec("a", "c"))], {"b": "e/a", "c": "e/b"}, {"e/a", "e/b"}),
        ([("e/a", 0, spec("a")), ("e/b", 0, spec("a")), ("r/a", 1, spec("a"))], {}, {"e/a", "e/b"}),
        ([("e/a", 0, spec("a")), ("r/a", 1, spec("a")), ("r/b", 1, spec("a"))], {}, {"r/a", "r/b"}),
        ([("e/a", 0, spec("a")), ("e/b", 0, spec("a", kind="vv.com/ee"))], None, set()),
    ],
)
def test_precedence_and_conflicts(files, devices, errors):
    found = catalog(*files)
    assert set(found.errors) == errors
    if devices is not None:
        assert {each.device: found.devices[each].path for each in found.devices} == devices
    else:
        assert len(found.devices) == 2


def test_conflict_messages_are_the_library_s():
    found = catalog(("e/a.json", 0, spec("a")), ("e/b.json", 0, spec("a")), ("e/c.json", 0, spec("a")))
    first = 'conflicting device "vv.com/dd=a" (specs "e/b.json", "e/a.json")'
    assert found.errors["e/b.json"] == (first,)
    assert found.errors["e/a.json"] == (
        first,
        'conflicting device "vv.com/dd=a" (specs "e/c.json", "e/a.json")',
    )


@pytest.mark.parametrize(
    ("asked", "best"),
    [
        ("nvidia.com/gpu=gpu-1A2B0000-5c1e-4d2a-9b7f-a0c01a2b0000", f"nvidia.com/gpu={UUIDS[0]}"),
        ("nvidia.com/gpus=all", "nvidia.com/gpu=all"),
        ("nvidia.com/gpu=alll", "nvidia.com/gpu=all"),
        ("amd.com/gpu=1", "nvidia.com/gpu=1"),
        ("nvidia.com/gpu=GPU-1a2b0001", f"nvidia.com/gpu={UUIDS[1]}"),
        ("nvidia.com/gpu=gpu-1A2B0000-5c1e", f"nvidia.com/gpu={UUIDS[0]}"),
    ],
)
def test_near(asked, best):
    near = catalog(("a", 0, gpus(UUIDS))).near(name(asked))
    assert near[0] == name(best)
    assert name(asked) not in near
    assert len(set(near)) == len(near) <= 5


def test_near_of_nothing():
    assert catalog().near(name("vv.com/dd=a")) == ()


def test_aliases():
    found = catalog(("a", 0, gpus(UUIDS)))
    assert found.aliases(name("nvidia.com/gpu=0")) == (name(f"nvidia.com/gpu={UUIDS[0]}"),)
    assert found.aliases(name("nvidia.com/gpu=all")) == ()
    assert found.aliases(name("nvidia.com/gpu=9")) == ()
    assert [each.device for each in found.within(name("nvidia.com/gpu=all"))] == [
        "0",
        UUIDS[0],
        "1",
        UUIDS[1],
    ]


def test_devices_without_own_nodes_are_no_aliases_of_each_other():
    found = catalog(("a", 0, spec("a", "b")))
    assert found.aliases(name("vv.com/dd=a")) == ()
    assert found.within(name("vv.com/dd=a")) == ()
    assert found.within(name("vv.com/dd=zz")) == ()
