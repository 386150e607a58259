import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core.versions import (
    capped_head,
    capped_version,
    meant_version,
    too_new,
    version_number,
    with_version,
)
from gate.http.parse import parse_response_head


@pytest.mark.parametrize(
    ("text", "number", "new"),
    [
        ("1.51", (1, 51), False),
        ("1.9", (1, 9), False),
        ("1.52", (1, 52), True),
        ("1.100", (1, 100), True),
        ("2.0", (2, 0), True),
        ("1.55-beta", None, True),
        ("", None, True),
        (None, None, True),
        (1.51, None, True),
    ],
)
def test_versions_compare_as_numbers_and_what_is_none_counts_as_new(
    text: object, number: tuple[int, int] | None, new: bool
) -> None:
    assert version_number(text) == number
    assert too_new(text) is new
    assert meant_version(text) == ("1.51" if new else None)


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"GET /info HTTP/1.1\r\n\r\n", b"GET /v1.51/info HTTP/1.1\r\n\r\n"),
        (b"GET /v1.44/info HTTP/1.1\r\n\r\n", b"GET /v1.44/info HTTP/1.1\r\n\r\n"),
        (b"POST /volumes/create HTTP/1.1\r\n\r\n{ }", b"POST /v1.51/volumes/create HTTP/1.1\r\n\r\n{ }"),
    ],
)
def test_a_request_without_a_version_gets_one(wire: bytes, expected: bytes) -> None:
    assert with_version(wire, "1.51") == expected
    assert with_version(expected, "1.51") == expected


@pytest.mark.parametrize(("offered", "told"), [("1.55", b"1.51"), ("1.51", b"1.51"), ("1.44", b"1.44")])
def test_a_head_offers_what_was_audited_at_most(offered: str, told: bytes) -> None:
    raw = f"HTTP/1.1 200 OK\r\nApi-Version: {offered}\r\nOstype: linux\r\nContent-Length: 2\r\n\r\n".encode()
    head = parse_response_head(raw, method="GET")
    capped = capped_head(head)
    assert capped.header(b"api-version") == told
    assert capped.header(b"ostype") == b"linux"
    assert (capped is head) == (offered.encode() == told)
    assert not (capped is not head and capped.verbatim)


def test_version_answers_are_capped_in_every_place() -> None:
    answer = {
        "ApiVersion": "1.55",
        "MinAPIVersion": "1.44",
        "Components": [
            {"Name": "Engine", "Details": {"ApiVersion": "1.55", "Os": "linux"}},
            {"Name": "runc"},
            7,
        ],
    }
    capped = json.loads(capped_version(json.dumps(answer).encode()))
    assert capped["ApiVersion"] == capped["Components"][0]["Details"]["ApiVersion"] == "1.51"
    assert capped["MinAPIVersion"] == "1.44"
    assert capped["Components"][1:] == answer["Components"][1:]  # type: ignore[index]
    older = json.dumps({"ApiVersion": "1.47"}).encode()
    assert capped_version(older) is older


@given(st.binary(max_size=40))
def test_anything_else_stays(body: bytes) -> None:
    assert capped_version(body) == body
