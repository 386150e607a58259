import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from machine.core.engine_info import EngineInfo, decode_ids, holder, strings

DISCOVERED = [
    {"Source": "cdi", "ID": "nvidia.com/gpu=0"},
    {"Source": "other", "ID": "x"},
    {"Source": "cdi"},
    "odd",
]


def info(**members: object) -> EngineInfo:
    return EngineInfo.parse(json.dumps({"ServerVersion": "28.5.2", **members}).encode())


def test_devices_are_those_of_cdi() -> None:
    found = info(CDISpecDirs=["/a", "/b"], DiscoveredDevices=DISCOVERED, Warnings=["w"])
    assert found.devices == {"nvidia.com/gpu=0"}
    assert found.cdi_spec_dirs == ("/a", "/b")
    assert found.warnings == ("w",)


@pytest.mark.parametrize("listed", [None, [], "odd"])
def test_no_device_is_known_from_a_daemon_that_lists_none(listed: object) -> None:
    assert info(DiscoveredDevices=listed).devices == frozenset()


@pytest.mark.parametrize(
    ("version", "lists"), [("28.1.1", False), ("26.1.5+dfsg1", False), ("28.2.0", True), ("29.0.0", True)]
)
def test_older_daemons_cannot_list_devices(version: str, lists: bool) -> None:
    found = info(ServerVersion=version, DiscoveredDevices=DISCOVERED)
    assert (found.devices is not None) is lists


@pytest.mark.parametrize("directories", [None, "x", 3])
def test_no_spec_dirs(directories: object) -> None:
    assert info(CDISpecDirs=directories).cdi_spec_dirs == ()


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"null", b'{"ServerVersion": 3}', b"\xff"])
def test_another_answer_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        EngineInfo.parse(raw)


def container(requests: object) -> bytes:
    return json.dumps({"Id": "i", "Name": "/web", "HostConfig": {"DeviceRequests": requests}}).encode()


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        (None, ()),
        ([], ()),
        ([{"Driver": "cdi", "DeviceIDs": ["a.b/c=0", "a.b/c=1"]}], ("a.b/c=0", "a.b/c=1")),
        ([{"Driver": "", "DeviceIDs": ["0"]}, {"Driver": "cdi", "DeviceIDs": None}], ()),
        (["odd"], ()),
    ],
)
def test_a_container_holds_the_cdi_devices_it_asked_for(requests: object, devices: tuple[str, ...]) -> None:
    found = holder(container(requests))
    assert (found.id, found.name, found.devices) == ("i", "web", devices)


@pytest.mark.parametrize("raw", [b"{}", b"[]", b'{"Id": "i", "Name": "n"}', b"x"])
def test_another_inspection_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        holder(raw)


def test_ids() -> None:
    assert decode_ids(b'[{"Id": "a"}, {"Id": 3}, "x", {"Id": "b"}]') == ("a", "b")
    for raw in (b"{}", b"x"):
        with pytest.raises(MalformedError):
            decode_ids(raw)


@given(st.binary(max_size=64))
def test_parsers_are_total(raw: bytes) -> None:
    for parse in (EngineInfo.parse, holder, decode_ids):
        with pytest.raises(MalformedError):
            parse(raw + b"\x00")


def test_strings_of_anything() -> None:
    assert strings(["a", 1, None]) == ("a",)
    assert strings({"a": 1}) == ()
