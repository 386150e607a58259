"""Docker's container types: every documented key is read, with the kind that Go has."""

import csv
from dataclasses import replace

import pytest

from gate.core.kinds import MismatchError
from gate.core.model import CONFIG, HOST_CONFIG, HostConfig, Resources, RestartPolicy, edited
from gate.core.structs import wire_names
from tests.shared_data import shared

SAMPLES: dict[str, tuple[object, object]] = {
    # kind of Go: a value it takes, a value it refuses
    "string": ("a", 1), "bool": (True, 1), "int": (1, "1"), "int64": (1, 1.5), "uint16": (1, -1),
    "uint64": (1, -1),
    "*int64": (0, "0"), "*bool": (False, 0), "[]string": (["a"], [1]), "map[string]string": ({"a": "b"},
    {"a": 1}),
    "[2]uint": ([1, 2], [1, -2]),
}  # fmt: skip


def test_every_known_key_is_read_with_its_kind() -> None:
    table = shared("docker-api", "hostconfig_fields.tsv")
    if table is None:
        pytest.skip("no shared corpus beside this checkout")
    rows = list(csv.DictReader(table.read_text().splitlines(), delimiter="\t"))
    assert {row["json_key"] for row in rows} == set(wire_names(HostConfig))
    for row in rows:
        good, bad = SAMPLES.get(row["go_type"], (None, 1.5))
        assert HOST_CONFIG.read({row["json_key"]: good}, []) is not None  # type: ignore[dict-item]
        with pytest.raises(MismatchError):
            HOST_CONFIG.read({row["json_key"]: bad}, [])  # type: ignore[dict-item]


def test_resources_are_a_part_of_the_host_configuration() -> None:
    assert set(wire_names(Resources)) < set(wire_names(HostConfig))


def test_nothing_given_is_nothing_written() -> None:
    assert HOST_CONFIG.to_json(HostConfig()) == {}
    assert CONFIG.to_json(CONFIG.read({}, [])) == {}
    assert HOST_CONFIG.to_json(HostConfig(restart_policy=RestartPolicy(name="no"))) == {
        "RestartPolicy": {"Name": "no"}
    }


def test_edited_copies_only_when_something_changes() -> None:
    host = HostConfig(binds=("v:/v",))
    assert edited(host, {"binds": ("v:/v",), "cap_add": None}) is host
    assert edited(host, {"cap_add": ("CHOWN",)}) == replace(host, cap_add=("CHOWN",))
