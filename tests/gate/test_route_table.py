"""The table: complete, and every row with what the daemon needs."""

import csv
import re

import pytest

from gate.core.denial import Denial
from gate.core.inspected import PARSERS
from gate.core.routes import ROUTES, Body, Kind, Matched, Route, match
from tests.shared_data import shared

SAMPLES = {
    "id": "abc",
    "name": "abc",
    "network": "abc",
    "image": "reg:5000/a/b:1@sha256:12",
    "checkpoint": "cp",
}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_matches_itself_with_and_without_version(route: Route) -> None:
    path = re.sub(r"\{(\w+)\}", lambda found: SAMPLES[found.group(1)], route.pattern)
    for prefix, version in (("", None), ("/v1.24", "1.24"), ("/v1.51", "1.51")):
        found = match(route.method, (prefix + path).encode())
        if route.rule is not None:
            assert isinstance(found, Denial)
            assert found.codes() == (route.rule.value,)
        else:
            assert isinstance(found, Matched)
            assert (found.route, found.api_version) == (route, version)
            assert found.target.decode() == prefix + path


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_query_key_passes(route: Route) -> None:
    if route.rule is not None:
        return
    path = re.sub(r"\{(\w+)\}", lambda found: SAMPLES[found.group(1)], route.pattern)
    query = "&".join(f"{key}=1" for key in sorted(route.query | route.multi))
    found = match(route.method, f"{path}?{query}".encode())
    assert isinstance(found, Matched)
    assert found.dropped == ()
    assert found.target.decode() == (f"{path}?{query}" if query else path)


def test_names_are_unique() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)


def test_inspected_routes_and_all_that_tunnel_have_a_reader_and_no_others() -> None:
    decided = {Kind.INSPECT, Kind.HIJACK, Kind.WEBSOCKET, Kind.H2C}
    assert {route.name for route in ROUTES if route.kind in decided} == set(PARSERS)


def test_denied_routes_have_a_rule_and_no_others() -> None:
    assert all((route.kind is Kind.DENY) == (route.rule is not None) for route in ROUTES)


def test_no_body_is_ever_announced_as_a_form() -> None:
    types = {route.content_type for route in ROUTES if route.body is not Body.NONE}
    assert types == {b"application/json", b"application/x-tar", b"application/octet-stream"}


def test_covers_every_known_endpoint() -> None:
    table = shared("docker-api", "endpoints.tsv")
    if table is None:
        pytest.skip("no shared corpus beside this checkout")
    rows = list(csv.DictReader(table.read_text().splitlines(), delimiter="\t"))
    for row in rows:
        if not row["path"].startswith("/"):
            continue  # the HTTP/2 preface, which is the reader's to refuse
        found = match(row["method"], re.sub(r"\{\w+\}", "abc", row["path"]).encode())
        buildkit = row["path"] in {"/grpc", "/session"}  # open by the issue, whatever the table suggests
        if row["suggested_gate_action"] == "deny" and not buildkit:
            assert isinstance(found, Denial), row
            assert found.status == 403
        else:
            assert isinstance(found, Matched), row
    assert len(rows) > 100
