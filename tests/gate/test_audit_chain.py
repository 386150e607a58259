import contextlib
import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from gate.core.audit_chain import (
    DETAIL_MAX_BYTES,
    MAX_LINE_BYTES,
    Actor,
    AuditedRepo,
    Entry,
    Event,
    Record,
    Tip,
    chain,
    encode,
    format_instant,
    line_hash,
    parse,
)
from gate.core.denial import Rule

NOW = datetime(2026, 11, 30, 12, 0, 0, 123000, tzinfo=UTC)
WHO = Actor(uid=1000, gid=1000, pid=4711)
REPO = AuditedRepo("gpu-a", "6af613b6-569c-4c22-9c37-2ed93f31d3af")
DENIED = Entry(
    at=NOW,
    event=Event.REQUEST_DENIED,
    actor=WHO,
    repo=REPO,
    subject="container.create",
    rules=("gpus-flag",),
    detail="no",
)

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the strategy adds the zone
short = st.text(max_size=20)
numbers = st.integers(-1, 2**40)
actors = st.builds(Actor, uid=numbers, gid=numbers, pid=numbers, login=short, sudo_user=short)
entries = st.builds(
    Entry,
    at=st.datetimes(min_value=EPOCH, timezones=st.just(UTC)).map(
        lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
    ),
    event=st.sampled_from([*map(str, Event), "newer.event"]),
    actor=actors,
    repo=st.none() | st.builds(AuditedRepo, short, short),
    subject=short,
    rules=st.lists(st.sampled_from([each.value for each in Rule]), max_size=4).map(tuple),
    detail=short,
    count=st.integers(1, 10**9),
    data=st.dictionaries(short, short | st.integers(0, 2**40), max_size=3),
)


@given(entry=entries, seq=st.integers(1, 2**50))
def test_a_line_read_is_the_line_written(entry: Entry, seq: int) -> None:
    record = Record(seq=seq, prev="0" * 63 + "f", entry=entry)
    line = encode(record)
    assert parse(line) == record
    assert line.isascii()
    assert line.count(b"\n") == 1


@given(text=st.text(max_size=4000), rules=st.lists(st.text(max_size=80), max_size=200))
def test_no_line_is_longer_than_what_is_read_from_the_end(text: str, rules: list[str]) -> None:
    actor = replace(WHO, login=text, sudo_user=text)
    entry = replace(
        DENIED,
        actor=actor,
        subject=text,
        detail=text,
        rules=tuple(rules),
        repo=AuditedRepo(text, text),
        count=10**15,
    )
    line = encode(Record(seq=10**15, prev="0" * 64, entry=entry))
    assert len(line) <= MAX_LINE_BYTES
    detail = parse(line).entry.detail
    assert len(json.dumps(detail)) - 2 <= DETAIL_MAX_BYTES
    assert detail == text or text.startswith(detail.removesuffix("..."))


@pytest.mark.parametrize("text", ["x" * 5000, "\N{GRINNING FACE}" * 5000, "\x00" * 5000])
def test_the_longest_line_fits(text: str) -> None:
    entry = Entry(
        at=NOW,
        event=Event.REQUEST_DENIED,
        actor=Actor(uid=2**40, gid=2**40, pid=2**40, login=text, sudo_user=text),
        repo=AuditedRepo(text, text),
        subject=text,
        rules=("r" * 90,) * 500,
        detail=text,
        count=2**60,
    )
    assert len(encode(Record(seq=2**60, prev="f" * 64, entry=entry))) <= MAX_LINE_BYTES


def test_each_line_holds_the_one_before() -> None:
    data, tip = chain(Tip.start(), [DENIED, replace(DENIED, detail="again")])
    first, second = data.splitlines(keepends=True)
    assert (parse(first).seq, parse(first).prev) == (1, "0" * 64)
    assert (parse(second).seq, parse(second).prev) == (2, hashlib.sha256(first).hexdigest())
    assert tip == Tip(2, line_hash(second))
    more, after = chain(tip, [DENIED])
    assert parse(more).prev == tip.hash
    assert after.seq == 3
    assert chain(tip, []) == (b"", tip)


def test_what_a_line_says() -> None:
    line = json.loads(chain(Tip.start(), [DENIED])[0])
    assert line == {
        "seq": 1,
        "at": "2026-11-30T12:00:00.123Z",
        "event": "request.denied",
        "actor": {"uid": 1000, "gid": 1000, "pid": 4711, "login": "", "sudo_user": ""},
        "repo": {"name": "gpu-a", "guid": REPO.guid},
        "subject": "container.create",
        "rules": ["gpus-flag"],
        "detail": "no",
        "count": 1,
        "prev": "0" * 64,
    }


def test_instants_are_utc() -> None:
    east = NOW.astimezone(timezone(timedelta(hours=5)))
    assert format_instant(east) == format_instant(NOW) == "2026-11-30T12:00:00.123Z"


GOOD = json.loads(chain(Tip.start(), [DENIED])[0])


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 0}, {"seq": "1"}, {"seq": True}, {"prev": "0"}, {"prev": "G" * 64}, {"prev": None},
        {"at": "yesterday"}, {"at": "2026-13-30T12:00:00.123Z"}, {"at": "2026-11-30T12:00:00.123+00:00"},
        {"event": 3}, {"actor": None}, {"actor": {}}, {"repo": "gpu-a"}, {"repo": {}}, {"rules": "x"},
        {"detail": None}, {"count": "1"}, {"data": []},
    ],
)  # fmt: skip
def test_what_is_no_line_is_told(change: dict[str, object]) -> None:
    assert parse(json.dumps(GOOD).encode() + b"\n").seq == 1
    with pytest.raises(MalformedError):
        parse(json.dumps({**GOOD, **change}).encode() + b"\n")


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"{}\n", b"[]\n", b"\x00" * 10 + b"\n", b"\xff\n", json.dumps(GOOD).encode()]
)
def test_bytes_that_are_no_line(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        parse(raw)


@given(st.binary(max_size=200))
def test_reading_is_total(raw: bytes) -> None:
    with contextlib.suppress(MalformedError):
        parse(raw + b"\n")


def test_a_line_of_a_newer_version_is_read() -> None:
    assert parse(json.dumps({**GOOD, "event": "new.thing", "more": {"x": 1}}).encode() + b"\n").seq == 1


def test_anchors() -> None:
    tip = Tip(41, "a" * 64)
    assert Tip.parse(str(tip)) == tip
    for text in ("", "41", "41:", f"x:{'a' * 64}", f"-1:{'a' * 64}", f"1:{'A' * 64}", "1:" + "a" * 63):
        with pytest.raises(MalformedError):
            Tip.parse(text)
