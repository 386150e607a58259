"""Raw requests that read one way here and another way there, through the gate and to real daemons.

Whatever a request would make a daemon do, the gate refuses it, or the daemon does exactly what was decided.
The corpus beside a checkout has many; the dangerous ones of our own are here.
"""

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import IMAGE, request
from tests.shared_data import shared
from tests.system.conftest import Gated

CREATE = "/v1.44/containers/create"
PRIVILEGED = '"Privileged":true'
DEVICE = '"Devices":[{"PathOnHost":"/dev/zero","PathInContainer":"/dev/z","CgroupPermissions":"rwm"}]'
UPGRADE = b"Connection: Upgrade\r\nUpgrade: tcp\r\n"
CDI = '"DeviceRequests":[{"Driver":"cdi","DeviceIDs":["nvidia.com/gpu=0"]}]'


def bodies() -> Iterator[tuple[str, str]]:
    """Ways of saying something in a create body so that a filter may miss it."""
    for name, what in (("privileged", PRIVILEGED), ("device", DEVICE), ("cdi", CDI)):
        key, value = what.split(":", 1)
        folded, odd = key.lower(), key.replace("s", "\u017f").replace("S", "\u017f")
        escaped = '"' + "".join(f"\\u{ord(char):04x}" for char in key.strip('"')) + '"'
        yield f"{name} plain", f'{{"Image":"{IMAGE}","Cmd":["true"],"HostConfig":{{{what}}}}}'
        yield f"{name} folded", f'{{"Image":"{IMAGE}","Cmd":["true"],"hostconfig":{{{folded}:{value}}}}}'
        yield f"{name} long s", f'{{"Image":"{IMAGE}","Cmd":["true"],"Ho\u017ftConfig":{{{odd}:{value}}}}}'
        yield f"{name} escaped", f'{{"Image":"{IMAGE}","Cmd":["true"],"HostConfig":{{{escaped}:{value}}}}}'
        yield f"{name} at the top", f'{{"Image":"{IMAGE}","Cmd":["true"],{what}}}'
        yield (
            f"{name} at the top, null below",
            f'{{"Image":"{IMAGE}","Cmd":["true"],{what},"HostConfig":null}}',
        )
        yield (
            f"{name} twice",
            f'{{"Image":"{IMAGE}","Cmd":["true"],"HostConfig":{{{what}}},"HostConfig":{{}}}}',
        )
        yield (
            f"{name} twice folded",
            f'{{"Image":"{IMAGE}","Cmd":["true"],"HostConfig":{{{what}}},"hostConfig":{{}}}}',
        )
        yield (
            f"{name} then null",
            f'{{"Image":"{IMAGE}","Cmd":["true"],"HostConfig":{{{what}}},"HostConfig":null}}',
        )
        yield (
            f"{name} twice inside",
            f'{{"Image":"{IMAGE}","Cmd":["true"],"HostConfig":{{{what},{key}:null}}}}',
        )
        yield (
            f"{name} before garbage",
            f'{{"Image":"{IMAGE}","Cmd":["true"],"HostConfig":{{{what}}}}}}}garbage',
        )
        yield (
            f"{name} with a lone surrogate",
            f'{{"Image":"{IMAGE}","Cmd":["true"],"HostConfig":{{{what}}},"Env":["A=\\ud800"]}}',
        )


def heads() -> Iterator[tuple[str, str, str]]:
    """Request lines and headers that route a create past a filter."""
    for target in (
        "/v1.44/containers%2Fcreate", "/v1.44%2fcontainers/create", "/v1.44/%63ontainers/create",
        "/v1.44./containers/create", "/v01.44/containers/create", "/v1.44.0.0/containers/create",
        "/v1.44//containers/create", "//containers/create",
        "/v1.44/./containers/create", "/v1.44/x/../containers/create", "http://d/v1.44/containers/create",
        "/containers/create?x=1;name=a", "/v1.24/containers/create",
    ):  # fmt: skip
        yield target, f"POST {target} HTTP/1.1", "Content-Type: application/json"
    yield "charset", f"POST {CREATE} HTTP/1.1", "Content-Type: application/json; charset=utf-16"
    yield "upper type", f"POST {CREATE} HTTP/1.1", "Content-Type: APPLICATION/JSON"
    yield "two types", f"POST {CREATE} HTTP/1.1", "Content-Type: application/json\r\nContent-Type: text/plain"
    yield "encoding", f"POST {CREATE} HTTP/1.1", "Content-Type: application/json\r\nContent-Encoding: gzip"
    yield "version", f"POST {CREATE} HTTP/1.2", "Content-Type: application/json"
    yield (
        "upgrade",
        f"POST {CREATE} HTTP/1.1",
        "Content-Type: application/json\r\nConnection: Upgrade\r\nUpgrade: h2c",
    )


def exchange(path: Path, raw: bytes) -> bytes:
    """Send raw bytes, end the sending side, and read everything."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        received = b""
        while part := client.recv(65536):
            received += part
        return received


def raw_create(line: str, headers: str, body: str) -> bytes:
    data = body.encode()
    return f"{line}\r\nHost: d\r\n{headers}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def containers(gated: Gated) -> list[dict[str, object]]:
    """Every container that the daemon made, inspected and then removed."""
    found = []
    for each in gated.daemon.request("GET", "/containers/json?all=1").json():
        found.append(gated.daemon.request("GET", f"/containers/{each['Id']}/json").json())
        gated.daemon.request("DELETE", f"/containers/{each['Id']}?force=1&v=1")
    return found


def carries(container: dict[str, object]) -> bool:
    host = container["HostConfig"]
    assert isinstance(host, dict)
    return bool(host["Privileged"] or host["Devices"] or host["DeviceRequests"])


def test_the_same_bodies_do_reach_the_raw_daemon(each_gated: Gated) -> None:
    """Else the next tests would prove nothing."""
    reached = set()
    for name, body in bodies():
        exchange(
            each_gated.daemon.socket,
            raw_create(f"POST {CREATE} HTTP/1.1", "Content-Type: application/json", body),
        )
        if any(map(carries, containers(each_gated))):
            reached.add(name)
    assert {"privileged plain", "privileged folded", "privileged long s", "privileged escaped"} <= reached
    assert {
        "privileged twice",
        "device twice folded",
        "cdi before garbage",
        "device with a lone surrogate",
    } <= reached
    top = {name for name in reached if "at the top" in name}
    assert bool(top) == (each_gated.daemon.engine.major < 27)


@pytest.mark.parametrize("headers", list(heads()), ids=lambda head: head[0])
def test_nothing_carries_a_device_or_privilege_past_the_gate(
    each_gated: Gated, headers: tuple[str, str, str]
) -> None:
    _, line, fields = headers
    for name, body in bodies():
        answer = exchange(each_gated.socket, raw_create(line, fields, body))
        status = int(answer.split(b" ", 2)[1])
        made = containers(each_gated)
        assert not any(map(carries, made)), (name, status)
        assert status in {400, 403, 505} or made, (name, answer[:200])


def test_a_second_request_is_never_smuggled(each_gated: Gated) -> None:
    """Bytes behind a request are a request of their own, read by the gate, or nothing."""
    inner = raw_create(
        f"POST {CREATE}?name=smuggled HTTP/1.1", "Content-Type: application/json", next(bodies())[1]
    )
    for outer in (
        b"POST /v1.44/containers/x/start HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n" % len(inner),
        b"GET /_ping HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n" % len(inner),
        b"POST /v1.44/nope HTTP/1.1\r\nHost: d\r\n" + UPGRADE + b"\r\n",
        b"POST /v1.44/exec/absent/start HTTP/1.1\r\nHost: d\r\n" + UPGRADE
        + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1.44/containers/absent/attach HTTP/1.1\r\nHost: d\r\n" + UPGRADE + b"\r\n",
        b"GET /_ping HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"GET /_ping HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        b"GET /_ping HTTP/1.1\nHost: d\n\n",
        b"",
    ):  # fmt: skip
        exchange(each_gated.socket, outer + inner)
        assert containers(each_gated) == []


def test_a_form_body_does_not_override_the_query(each_gated: Gated) -> None:
    made = request(each_gated.socket, "POST", f"{CREATE}?name=first", {"Image": IMAGE, "Cmd": ["true"]})
    assert made.status == 201
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    request(each_gated.socket, "POST", "/v1.44/containers/first/rename?name=good", b"name=evil", form)
    names = {container["Name"] for container in containers(each_gated)}
    assert "/evil" not in names


def vectors() -> list[dict[str, object]]:
    corpus = shared("docker-api", "vectors.jsonl")
    return [] if corpus is None else [json.loads(line) for line in corpus.read_text().splitlines()]


def test_the_corpus_makes_no_daemon_do_what_was_not_decided(each_gated: Gated) -> None:
    for vector in vectors():
        raw = base64.b64decode(str(vector["raw_b64"])).replace(
            b'"Image":"x"', f'"Image":"{IMAGE}","Cmd":["true"]'.encode()
        )
        head, _, body = raw.partition(b"\r\n\r\n")
        if b"Content-Length: " in head and b"Image" in body:
            grown = len(body) - len(base64.b64decode(str(vector["raw_b64"])).partition(b"\r\n\r\n")[2])
            before, _, after = head.partition(b"Content-Length: ")
            digits = after.split(b"\r\n")[0]
            if digits.isdigit():
                head = before + b"Content-Length: %d" % (int(digits) + grown) + after[len(digits) :]
        exchange(each_gated.socket, head + b"\r\n\r\n" + body)
        made = containers(each_gated)
        assert not any(map(carries, made)), vector["name"]
        assert all(container["Name"] != "/SMUGGLED" for container in made), vector["name"]
