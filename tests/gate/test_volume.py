"""Volumes: the local driver, no options that mount something else."""

import json

import pytest

from base.errors import MalformedError
from gate.core.denial import Denial
from gate.core.policy import Forward
from tests.gate.world import World, body_of


def create(raw: bytes) -> Forward | Denial:
    return World().decide("POST", b"/v1.51/volumes/create", raw)


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ({}, {}),
        ({"Name": "v", "Driver": "local", "Labels": {"a": "b"}}, None),
        (
            {"Name": "v", "Driver": "local", "DriverOpts": {}, "Foo": 1},
            {"Name": "v", "Driver": "local", "DriverOpts": {}},
        ),
        ({"DriverOpts": {"size": "1G"}}, None),
        ({"ClusterVolumeSpec": None}, {}),
    ],
)
def test_forwarded(body: dict[str, object], sent: dict[str, object] | None) -> None:
    assert body_of(create(json.dumps(body).encode())) == (body if sent is None else sent)


def test_no_body_is_an_empty_one() -> None:
    assert body_of(create(b"")) == {}


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ({"Driver": "nfs"}, ("volume-driver",)),
        ({"Driver": "LOCAL"}, ("volume-driver",)),
        ({"DriverOpts": {"type": "none", "o": "bind", "device": "/dev"}}, ("volume-option",)),
        ({"driveropts": {"type": "devtmpfs"}}, ("volume-option",)),
        ({"DriverOpts": {"Size": "1"}}, ("volume-option",)),
        ({"ClusterVolumeSpec": {}}, ("cluster-volume",)),
        (
            {"Driver": "x", "DriverOpts": {"o": "x"}, "ClusterVolumeSpec": 1},
            ("volume-driver", "volume-option", "cluster-volume"),
        ),
    ],
)
def test_refused(body: dict[str, object], codes: tuple[str, ...]) -> None:
    decision = create(json.dumps(body).encode())
    assert isinstance(decision, Denial)
    assert decision.codes() == codes


def test_maps_that_go_would_merge_are_refused() -> None:
    with pytest.raises(MalformedError):
        create(b'{"DriverOpts":{"size":"1"},"driverOpts":{"o":"bind"}}')
