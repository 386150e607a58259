"""Whole requests: what real clients send, and the corpus of requests that fool a naive reader."""

import base64
import json
from pathlib import Path
from typing import cast

import pytest

from base.errors import MalformedError
from gate.core.denial import Denial
from gate.core.inspected import PARSERS, parse
from gate.core.policy import Forward
from gate.core.routes import Kind, Matched, match
from tests.gate.world import FULL_ID, World, allowing, container
from tests.shared_data import shared

CASES = Path(__file__).parent / "cases" / "cli.jsonl"
CLI = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
WORLD = allowing(
    World(containers={name: container() for name in ("dev", FULL_ID, "c" * 64)}), bind_roots=("/srv/data",)
)


def decide(method: str, target: bytes, body: bytes) -> Matched | Forward | Denial:
    """A request's fate: refused, forwarded as decided, or transparent."""
    matched = match(method, target)
    if isinstance(matched, Denial) or matched.route.kind is not Kind.INSPECT:
        return matched
    return WORLD.decide(method, target, body if matched.route.name in PARSERS else b"")


@pytest.mark.parametrize("case", CLI, ids=lambda case: f"{case['client'][:9]} {case['target'][:50]}")
def test_what_the_docker_cli_and_compose_send(case: dict[str, object]) -> None:
    """Recorded from real clients; `codes` is what the gate says, `dropped` what no daemon reads either."""
    raw = str(case["body"]).encode()
    found = decide(str(case["method"]), str(case["target"]).encode(), raw)
    assert (list(found.codes()) if isinstance(found, Denial) else []) == case["codes"]
    if isinstance(found, Matched):
        assert list(found.dropped) == case["dropped"]
    if isinstance(found, Forward):
        named = " ".join(found.response_warnings)
        assert len(found.response_warnings) == len(case["dropped"])  # type: ignore[arg-type]
        assert all(key in named for key in case["dropped"])  # type: ignore[attr-defined]


NOTHING = (None, "", 0, False, {}, [])


def _pruned(value: object) -> object:
    """JSON without what means nothing to Go: null, zero, false and empty."""
    if isinstance(value, dict):
        pruned = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in pruned.items() if item not in NOTHING}
    if isinstance(value, list):
        items = [_pruned(item) for item in value]
        return items if any(item not in NOTHING for item in items) else []
    return value


@pytest.mark.parametrize(
    "case",
    [case for case in CLI if case["body"] and not case["codes"] and "create" in case["target"]],
    ids=lambda case: f"{case['client'][:9]} {case['target'][:50]}",
)
def test_what_is_forwarded_means_what_was_sent(case: dict[str, object]) -> None:
    found = decide(str(case["method"]), str(case["target"]).encode(), str(case["body"]).encode())
    assert isinstance(found, Forward)
    assert found.body is not None
    before, after = json.loads(str(case["body"])), json.loads(found.body)
    if case["dropped"]:
        before["NetworkingConfig"] = None
    for body in (before, after):
        host = body.get("HostConfig", {})
        for request in host.get("DeviceRequests") or ():
            request["Capabilities"] = request["Options"] = None
        for key in ("NetworkMode", "IpcMode"):  # containers are named by their full id
            host[key] = host.get(key, "").partition(":")[0]
        host["VolumesFrom"] = len(host.get("VolumesFrom") or ())
        body["Env"] = [entry for entry in body.get("Env") or () if entry != "NVIDIA_VISIBLE_DEVICES=void"]
    assert _pruned(after) == _pruned(before)


def test_every_parser_raises_for_what_it_cannot_read() -> None:
    for name, target in {
        "container.create": b"/containers/create",
        "container.exec": b"/containers/a/exec",
        "container.update": b"/containers/a/update",
        "network.create": b"/networks/create",
        "network.connect": b"/networks/n/connect",
        "network.disconnect": b"/networks/n/disconnect",
        "volume.create": b"/volumes/create",
        "commit": b"/commit",
    }.items():
        matched = match("POST", target)
        assert isinstance(matched, Matched)
        assert matched.route.name == name
        with pytest.raises(MalformedError):
            parse(b"[1]", matched)


# The corpus beside the checkout: raw requests, and what two engines made of them.

ENGINES = ("moby_26.1", "moby_28.x")


def _vectors() -> list[dict[str, object]]:
    path = shared("docker-api", "vectors.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path else []
    return [row for row in rows if row["group"] in {"json", "path"}]


@pytest.mark.parametrize("row", _vectors(), ids=lambda row: row["name"])
def test_vectors_are_refused_or_have_exactly_the_decided_effect(row: dict[str, object]) -> None:
    head, _, body = base64.b64decode(str(row["raw_b64"])).partition(b"\r\n\r\n")
    request_line = head.split(b"\r\n")[0].split(b" ")
    if len(request_line) != 3:
        return  # not HTTP; the reader refuses it
    method, target = request_line[0].decode(), request_line[1]
    try:
        found = decide(method, target, body)
    except MalformedError:
        return
    if isinstance(found, Denial):
        return
    assert not target.startswith(b"http")
    for engine in ENGINES:
        outcome = cast("dict[str, list[str]]", row[engine])
        for effect in outcome["effects"]:
            _same_effect(effect, found)


def _same_effect(effect: str, found: Matched | Forward) -> None:
    """A forwarded request does at the daemon what the vector did, and that is harmless."""
    verb, _, rest = effect.partition(" ")
    sent = json.loads(found.body) if isinstance(found, Forward) and found.body else {}
    if verb == "CREATE":
        seen = json.loads(rest)
        host = sent["HostConfig"]
        assert not seen["Privileged"]
        assert not seen["Devices"]
        assert seen["Image"] == sent["Image"]
        assert (seen["Env"] or None) == sent.get("Env")
        assert [ids for request in seen["DeviceRequests"] or () for ids in request["DeviceIDs"] or ()] == [
            ids for request in host.get("DeviceRequests", ()) for ids in request["DeviceIDs"]
        ]
        assert f"name={seen['name']}" in found.target.decode() or not seen["name"]
    elif verb == "START":
        assert 'cp="" dir=""' in rest
    elif verb == "RENAME":
        # The body that would have changed the name is dropped, as the route takes none.
        assert found.target.endswith(b"rename?name=good")
    elif verb == "EXEC":
        assert '"Privileged":false' in rest
    else:
        assert verb in {"UPDATE", "RM", "BUILD", "EXECSTART"}
