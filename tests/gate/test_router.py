"""Matching: literal paths before names, names by Docker's grammar, everything else 403."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core.denial import Denial, Rule
from gate.core.router import Body, Kind, Matched, Route, RouteTable
from gate.core.routes import match

MATCHES = [
    ("GET", b"/images/json", "image.list", {}),
    ("GET", b"/images/get?names=a", "image.get_many", {}),
    ("POST", b"/images/load", "image.load", {}),
    ("GET", b"/images/json/json", "image.inspect", {"image": "json"}),
    ("GET", b"/images/a/get/json", "image.inspect", {"image": "a/get"}),
    ("GET", b"/images/a%2Fb%3A1/json", "image.inspect", {"image": "a/b:1"}),
    ("DELETE", b"/images/localhost:5000/a/b:tag", "image.remove", {"image": "localhost:5000/a/b:tag"}),
    ("GET", b"/images/sha256:abc/history", "image.history", {"image": "sha256:abc"}),
    ("GET", b"/distribution/a/b/json", "distribution.inspect", {"image": "a/b"}),
    ("GET", b"/containers/json", "container.list", {}),
    ("GET", b"/containers/json/json", "container.inspect", {"id": "json"}),
    ("POST", b"/containers/create/start", "container.start", {"id": "create"}),
    ("DELETE", b"/containers/prune", "container.remove", {"id": "prune"}),
    ("GET", b"/containers/a/attach/ws", "container.attach_ws", {"id": "a"}),
    ("GET", b"/networks/", "network.list", {}),
    ("GET", b"/networks/create", "network.inspect", {"network": "create"}),
    ("DELETE", b"/networks/my%20net", "network.remove", {"network": "my net"}),
    ("POST", b"/v1.44/containers/%63reate", "container.create", {}),
    ("POST", b"/grpc", "build.grpc", {}),
    ("POST", b"/session", "build.session", {}),
]


@pytest.mark.parametrize(("method", "target", "name", "params"), MATCHES)
def test_matches(method: str, target: bytes, name: str, params: dict[str, str]) -> None:
    found = match(method, target)
    assert isinstance(found, Matched)
    assert (found.route.name, dict(found.params)) == (name, params)


REFUSED = [
    ("POST", b"/containers/a/b/start", 403, Rule.UNKNOWN_ENDPOINT),
    ("POST", b"/containers/a%2Fb/start", 403, Rule.UNKNOWN_ENDPOINT),
    ("POST", b"/containers%2Fcreate", 403, Rule.UNKNOWN_ENDPOINT),
    ("POST", b"/v1.44%2fcontainers/create", 403, Rule.UNKNOWN_ENDPOINT),
    ("POST", b"/v1.44/containers/%2563reate", 403, Rule.UNKNOWN_ENDPOINT),
    ("POST", b"/containers/create/", 403, Rule.UNKNOWN_ENDPOINT),
    ("POST", b"/containers/create;x=1", 403, Rule.UNKNOWN_ENDPOINT),
    ("POST", b"/containers/create%3fx", 403, Rule.UNKNOWN_ENDPOINT),
    ("POST", b"/Containers/create", 403, Rule.UNKNOWN_ENDPOINT),
    ("post", b"/containers/create", 403, Rule.UNKNOWN_ENDPOINT),
    ("HEAD", b"/containers/create", 403, Rule.UNKNOWN_ENDPOINT),
    ("OPTIONS", b"/containers/json", 403, Rule.UNKNOWN_ENDPOINT),
    ("CONNECT", b"/info", 403, Rule.UNKNOWN_ENDPOINT),
    ("GET", b"/containers/-x/json", 400, Rule.MALFORMED),
    ("GET", b"/containers/a%20b/json", 400, Rule.MALFORMED),
    ("GET", b"/images/a%2F..%2Fb/json", 400, Rule.MALFORMED),
    ("GET", b"/images/%2Fa/json", 400, Rule.MALFORMED),
    ("GET", b"/images/a%2F%2Fb/json", 400, Rule.MALFORMED),
    ("GET", b"/v1.52/info", 400, Rule.API_VERSION),
    ("GET", b"/v1.99/info", 400, Rule.API_VERSION),
    ("GET", b"/plugins", 403, Rule.PLUGINS),
    ("POST", b"/v1.44/plugins/a/b/enable", 403, Rule.PLUGINS),
    ("POST", b"/swarm/init", 403, Rule.SWARM),
    ("GET", b"/services/x/logs", 403, Rule.SWARM),
    ("POST", b"/services/x/update", 403, Rule.SWARM),
    ("GET", b"/secrets", 403, Rule.SWARM),
    ("GET", b"/debug/pprof/heap", 403, Rule.DEBUG),
    ("PUT", b"/volumes/v", 403, Rule.CLUSTER_VOLUME),
    ("POST", b"/containers/a/checkpoints", 403, Rule.CHECKPOINTS),
    ("DELETE", b"/containers/a/checkpoints/b?dir=/etc", 403, Rule.CHECKPOINTS),
    ("POST", b"/containers/a/start?checkpoint=c", 403, Rule.CHECKPOINTS),
    ("POST", b"/containers/a/start?checkpoint-dir=/etc", 403, Rule.CHECKPOINTS),
    ("POST", b"/containers/a/copy", 403, Rule.LEGACY_COPY),
    ("POST", b"/containers/a/rename?name=b&name=c", 400, Rule.MALFORMED),
    ("DELETE", b"/containers/", 400, Rule.MALFORMED),
    ("GET", b"/debug/pprof/", 403, Rule.DEBUG),
    ("GET", b"/nope", 403, Rule.UNKNOWN_ENDPOINT),
]


@pytest.mark.parametrize(("method", "target", "status", "rule"), REFUSED)
def test_refused(method: str, target: bytes, status: int, rule: Rule) -> None:
    found = match(method, target)
    assert isinstance(found, Denial)
    assert (found.status, found.codes()) == (status, (rule.value,))


def test_empty_refused_parameters_are_left_out() -> None:
    found = match("POST", b"/containers/a/start?checkpoint=&detachKeys=a")
    assert isinstance(found, Matched)
    assert found.target == b"/containers/a/start?detachKeys=a"


def test_unknown_parameters_are_dropped_and_named() -> None:
    found = match("POST", b"/containers/a/rename?name=b&evil=1")
    assert isinstance(found, Matched)
    assert (found.target, found.dropped) == (b"/containers/a/rename?name=b", ("evil",))


def test_rebuilt_target() -> None:
    found = match("POST", b"/v1.44/containers/a/restart?t=1")
    assert isinstance(found, Matched)
    assert found.rebuilt(params={"id": "b"}, query=(("t", "2"),)) == b"/v1.44/containers/b/restart?t=2"
    assert found.one("t") == "1"
    assert found.one("signal") == ""


def test_inspect_of_nothing_goes_on_past_plugins() -> None:
    """The CLI skips a kind of object whose error says so; else `docker inspect NAME` would end in a 403."""
    found = match("GET", b"/plugins/x/json")
    assert isinstance(found, Denial)
    assert "not supported" in found.message()


def test_two_routes_for_one_path_are_a_mistake() -> None:
    one = Route(name="a", method="GET", pattern="/x/{id}", kind=Kind.TRANSPARENT)
    two = Route(name="b", method="GET", pattern="/x/{name}", kind=Kind.TRANSPARENT, body=Body.NONE)
    image = Route(name="c", method="GET", pattern="/i/{image}/j", kind=Kind.TRANSPARENT)
    for routes in ((one, two), (image, replace(image, name="d"))):
        with pytest.raises(ValueError, match="two routes"):
            RouteTable(routes, {}, {})


segments = st.sampled_from([
    "v1.44", "containers", "images", "create", "json", "a", "b%2Fc", "..", "%2e", "start", "", "exec", "x:1",
    "get",
])  # fmt: skip


@given(
    st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD", "x"]),
    st.lists(segments, max_size=6),
    st.binary(max_size=20),
)
def test_total_and_canonical(method: str, parts: list[str], tail: bytes) -> None:
    """What is matched means itself: its canonical target matches the same route and stays as it is."""
    found = match(method, ("/" + "/".join(parts)).encode() + tail)
    if isinstance(found, Denial):
        assert found.status in {400, 403}
        return
    again = match(method, found.target)
    assert isinstance(again, Matched)
    assert (again.route, again.target, dict(again.params)) == (found.route, found.target, dict(found.params))
