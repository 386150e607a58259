"""Real nvidia-ctk specs as a machine's: list, grant, refuse, project, and a container that opens just it."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine import IMAGE, request
from tests.grants import cards
from tests.shared_data import shared
from tests.system.conftest import Gated
from tests.system.stand_ins import Node, StandIns, chosen, mounts_of, nodes_of

ORACLE = shared("cdi", "specs", "oracle.json")
VERDICTS: dict[str, Any] = {} if ORACLE is None else json.loads(ORACLE.read_text())
OWN = {
    "own-cards": cards.nvidia(0, 1),
    "own-slice": cards.nvidia(3, 2, mig_of=1),
    "own-render": cards.dri(128),
}
TOOLKIT = re.compile(r"-ctk([0-9.]+[0-9])")
EVERY = os.environ.get("RDC_SPECS") == "all"


def specs() -> list[str]:
    """Our own, and of the shared ones the newest toolkit's for each kind of machine, or all of them."""
    kinds: dict[tuple[str, bool], list[str]] = {}
    for name in sorted(name for name, verdict in VERDICTS.items() if verdict is not None):
        kind = (name.partition("-")[0], "mig" in name)
        kinds.setdefault((name, True) if EVERY else kind, []).append(name)
    return [*OWN, *(max(names, key=_toolkit) for names in kinds.values())]


def _toolkit(name: str) -> tuple[int, ...]:
    found = TOOLKIT.search(name)
    return tuple(map(int, found[1].split("."))) if found else ()


SPECS = specs()
CREATE, START = "/v1.44/containers/create", "/v1.44/containers/{}/start"


@pytest.fixture(scope="module")
def stand_ins(gated28: Gated) -> StandIns:
    return StandIns(gated28.machine.root / "stand-ins")


@pytest.fixture
def document(
    request: pytest.FixtureRequest, gated28: Gated, stand_ins: StandIns, tmp_path: Path
) -> Iterator[Any]:
    """The named spec, moved onto stand-ins, as the only spec of the machine."""
    name = request.param
    if name in OWN:
        (tmp_path / name).write_bytes(OWN[name])
        path = tmp_path / name
    else:
        assert ORACLE is not None
        path = ORACLE.parent / name
    for left in gated28.machine.spec_dir.iterdir():
        left.unlink()
    made = stand_ins.rebased(path)
    gated28.machine.write_spec("machine.json", made)
    yield made
    gated28.revoke_all()


def probe(own: set[Node], others: set[Node], mounts: set[str]) -> str:
    """A script that says what is wrong, and `done` at its end.

    Of its own: a node that is missing or may not be opened, a mount that is missing. Of others: a node that
    is there, or may be opened once it is made.
    """
    lines = [
        'denied() { ( : <"$1" ) 2>&1 | grep -q "not permitted"; }',
        'own() { [ "$(stat -c %t:%T "$1")" = "$2" ] || echo "missing $1"; denied "$1" && echo "closed $1"; }',
        'made() { mknod /tmp/n c "$2" "$3"; denied /tmp/n || echo "open $1"; rm -f /tmp/n; }',
        'other() { [ -e "$1" ] && echo "there $1"; made "$@"; }',
        'mounted() { [ -e "$1" ] || echo "not mounted $1"; }',
        *(f"own {node.path} {node.major:x}:{node.minor:x}" for node in sorted(own)),
        *(f"other {node.path} {node.major} {node.minor}" for node in sorted(others)),
        *(f"mounted {path}" for path in sorted(mounts)),
        "echo done",
    ]
    return "\n".join(lines)


def run(gated: Gated, device: str, script: str) -> tuple[int, str]:
    """Status of create, or of start if that failed, and what the container said."""
    requests = [{"Driver": "cdi", "DeviceIDs": [device]}]
    body = {
        "Image": IMAGE, "Cmd": ["sh", "-c", script], "Tty": True,
        "HostConfig": {"NetworkMode": "none", "DeviceRequests": requests},
    }  # fmt: skip
    made = request(gated.socket, "POST", CREATE, body)
    if made.status != 201:
        return made.status, made.body.decode()
    identity = made.json()["Id"]
    try:
        started = request(gated.socket, "POST", START.format(identity))
        if started.status != 204:
            return started.status, started.body.decode()
        request(gated.socket, "POST", f"/v1.44/containers/{identity}/wait")
        logs = request(gated.socket, "GET", f"/v1.44/containers/{identity}/logs?stdout=1&stderr=1")
        return 204, logs.body.decode()
    finally:
        request(gated.socket, "DELETE", f"/v1.44/containers/{identity}?force=1")


@pytest.mark.parametrize("document", SPECS, indirect=True)
def test_a_real_spec_from_list_to_container(document: Any, gated28: Gated) -> None:
    kind, names = document["kind"], [each["name"] for each in document["devices"]]
    listed = json.loads(gated28.machine.renet("cdi", "list", "-o", "json").stdout)
    assert set(listed["devices"]) == {f"{kind}={name}" for name in names}
    tried = {name: f"{kind}={name}" for name in chosen(names)}
    for device in tried.values():
        status, said = run(gated28, device, "true")
        assert (status, "grant-missing" in said) == (403, True), said
    gated28.grant(*tried.values())
    assert projected(gated28) == sorted(tried.values())
    every = set[Node]().union(*(nodes_of(document, name) for name in names))
    for name, device in tried.items():
        own = nodes_of(document, name)
        status, said = run(gated28, device, probe(own, every - own, mounts_of(document, name)))
        assert (status, said.split()) == (204, ["done"]), f"{device}: {said}"


def projected(gated: Gated) -> list[str]:
    """Every name in the directory that the repo's daemon reads."""
    documents = [json.loads(path.read_text()) for path in Path(gated.repo["cdi_spec_dir"]).iterdir()]
    return sorted(f"{spec['kind']}={device['name']}" for spec in documents for device in spec["devices"])
