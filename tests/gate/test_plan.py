"""Plans: what a head will have done to it, and that remembering changes nothing."""

import pytest

from gate.core.routes import match
from gate.http.message import HttpCode, HttpError
from gate.plan import BodyUse, Plan, PlanCache, Refused, plan_request
from tests.gate.harness import get, post


def head(raw: bytes) -> bytes:
    return raw[: raw.index(b"\r\n\r\n") + 4]


def planned(raw: bytes) -> Plan:
    plan = plan_request(head(raw), match)
    assert isinstance(plan, Plan)
    return plan


TAR = "Content-Type: application/x-tar"
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
FORM = "application/x-www-form-urlencoded"
UPGRADE = ("Connection: Upgrade", "Upgrade: tcp")


@pytest.mark.parametrize(
    ("raw", "use", "line", "fields"),
    [
        (get("/_ping"), BodyUse.DROP, "GET /_ping", ()),
        (get("/_ping", "Content-Length: 3"), BodyUse.DROP, "GET /_ping", ()),
        (
            get("/containers/a/kill", CHUNKED, method="POST"),
            BodyUse.DROP,
            "POST /containers/a/kill",
            ("Content-Length: 0",),
        ),
        (get("/containers/a", method="DELETE"), BodyUse.DROP, "DELETE /containers/a", ()),
        (
            post("/auth", b"{}", content_type="Application/JSON; charset=x"),
            BodyUse.WHOLE,
            "POST /auth",
            (JSON, "Content-Length: 2"),
        ),
        (
            post("/images/load", b"abc", content_type=FORM),
            BodyUse.STREAM,
            "POST /images/load",
            (TAR, "Content-Length: 3"),
        ),
        (
            get("/containers/a/archive?path=/x", CHUNKED, method="PUT"),
            BodyUse.STREAM,
            "PUT /containers/a/archive?path=%2Fx",
            (TAR, CHUNKED),
        ),
        (
            get("/containers/a/attach", *UPGRADE, method="POST"),
            BodyUse.DROP,
            "POST /containers/a/attach",
            ("Content-Length: 0", *UPGRADE),
        ),
    ],
)
def test_wire(raw: bytes, use: BodyUse, line: str, fields: tuple[str, ...]) -> None:
    plan = planned(raw)
    wire = "\r\n".join([f"{line} HTTP/1.1", "Host: docker", *fields, "", ""]).encode()
    assert (plan.body_use, plan.wire) == (use, wire)


@pytest.mark.parametrize(
    ("raw", "replayable"),
    [
        (get("/_ping"), True),
        (get("/_ping", method="HEAD"), True),
        (post("/containers/a/kill"), False),
        (get("/containers/a", method="DELETE"), False),
        (get("/containers/a/attach/ws", "Connection: Upgrade", "Upgrade: websocket"), False),
    ],
)
def test_replayable(raw: bytes, replayable: bool) -> None:
    assert planned(raw).replayable is replayable


def test_denied() -> None:
    plan = plan_request(head(get("/plugins")), match)
    assert isinstance(plan, Refused)
    assert plan.denial.status == 403


def test_an_upgrade_that_is_the_whole_point() -> None:
    with pytest.raises(HttpError) as caught:
        plan_request(head(get("/grpc", method="POST")), match)
    assert caught.value.rule is HttpCode.UPGRADE


def test_the_cache_forgets_and_keeps_no_credentials() -> None:
    cache = PlanCache(match)
    raw = head(get("/_ping"))
    assert cache.plan(raw) is cache.plan(raw)
    assert cache.plan(raw) == plan_request(raw, match)
    secret = head(get("/_ping", "X-Registry-Auth: s"))
    assert cache.plan(secret) is not cache.plan(secret)
    first = cache.plan(raw)
    for number in range(2000):
        cache.plan(head(get(f"/containers/c{number}/json")))
    assert cache.plan(raw) is not first
    long = head(get("/_ping", "User-Agent: " + "x" * 4000))
    assert cache.plan(long) is not cache.plan(long)
    with pytest.raises(HttpError):
        cache.plan(b"nonsense\r\n\r\n")
