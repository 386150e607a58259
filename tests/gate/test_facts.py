"""Answers of the daemon, read."""

import pytest

from base.errors import MalformedError
from gate.core.facts import ContainerFact, MountPoint, VolumeFact


def test_container() -> None:
    fact = ContainerFact.parse(
        {
            "Id": "ab",
            "Name": "/c",
            "Created": "2026-11-30",
            "State": {"Running": True, "Health": {"Log": [{"ExitCode": 0}]}},
            "HostConfig": {"Privileged": True, "NetworkMode": "none", "Unknown": [1.5]},
            "Mounts": [{"Type": "bind", "Source": "/x", "Destination": "/y", "RW": True}],
        }
    )
    assert (fact.id, fact.host_config.privileged, fact.host_config.network_mode) == ("ab", True, "none")
    assert fact.mounts == (MountPoint(type_="bind", source="/x", destination="/y", rw=True),)
    assert fact.state is not None
    assert fact.state.running


def test_volume() -> None:
    fact = VolumeFact.parse({"Name": "v", "Driver": "local", "Options": {"o": "bind"}, "Status": None})
    assert (fact.name, fact.driver, fact.options) == ("v", "local", {"o": "bind"})


@pytest.mark.parametrize("answer", [{"Id": 1}, {"HostConfig": []}, {"Mounts": {}}])
def test_wrong_types_are_refused(answer: dict[str, object]) -> None:
    with pytest.raises(MalformedError):
        ContainerFact.parse(answer)
