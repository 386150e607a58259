"""The audit log's lines: what one says, how it is written and read, and how each holds the last. Pure.

One line is one event as JSON in ASCII, ended by a newline. `seq` counts from 1 without gaps over all files,
`prev` is the SHA-256 of the exact bytes of the line before, newline included, so that
`sed -n 41p audit.jsonl | sha256sum` gives the `prev` of line 42. Source: issue "No way round the gate",
part 6.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from base.errors import MalformedError

MAX_LINE_BYTES = 16 * 1024
"""No line is longer: the last one is found by reading that much from a file's end."""

DETAIL_MAX_BYTES = 1024
"""Longest `detail` as encoded: a client chooses much of it, and must not choose how fast the log grows."""

_TEXT_MAX_BYTES = 256
_RULES_MAX = 96
_GENESIS = "0" * 64
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_NO_DATA: Mapping[str, str | int] = MappingProxyType({})

_Json: TypeAlias = "bool | int | float | str | list[_Json] | dict[str, _Json] | None"


class Event(StrEnum):
    """What happened. The values are stable; a reader takes others for events of a newer version."""

    REQUEST_DENIED = "request.denied"
    GRANT_GRANTED = "grant.granted"
    GRANT_REVOKED = "grant.revoked"
    GRANT_EXPIRED = "grant.expired"
    GRANT_REFUSED = "grant.refused"
    GRANT_FAILED = "grant.failed"
    CONTAINER_STOPPED = "container.stopped"
    REPO_CREATED = "repo.created"
    REPO_RENAMED = "repo.renamed"
    REPO_DELETED = "repo.deleted"
    REPO_FAILED = "repo.failed"
    GATE_STARTED = "gate.started"
    GATE_STOPPED = "gate.stopped"
    AUDIT_ROTATED = "audit.rotated"
    AUDIT_RECOVERED = "audit.recovered"
    AUDIT_THINNED = "audit.thinned"
    AUDIT_LOST = "audit.lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whose doing it was; -1 and empty where unknown.

    For a denial the peer of the socket as the kernel saw it, else the process that acted. `login` is who
    logged in to begin with (the kernel's login uid), `sudo_user` who called sudo.
    """

    uid: int
    gid: int
    pid: int
    login: str = ""
    sudo_user: str = ""


@dataclass(frozen=True, slots=True)
class AuditedRepo:
    """The repo that an event is about, by the name it had then."""

    name: str
    guid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event, before it has its place in the chain.

    Args:
        at: when it happened.
        event: an `Event`, or one of a newer version.
        actor: whose doing it was.
        repo: None when it concerns no repo.
        subject: what it was done to: a device, a container's id, a route, a file of the log.
        rules: codes of the broken rules.
        detail: words for people.
        count: how many alike the line stands for.
        data: what programs need beyond that.
    """

    at: datetime
    event: str
    actor: Actor
    repo: AuditedRepo | None = None
    subject: str = ""
    rules: tuple[str, ...] = ()
    detail: str = ""
    count: int = 1
    data: Mapping[str, str | int] = field(default_factory=lambda: _NO_DATA)


@dataclass(frozen=True, slots=True)
class Tip:
    """The end of the chain: the last line's number and the SHA-256 of its bytes. Enough to go on from."""

    seq: int
    hash: str

    @classmethod
    def start(cls) -> "Tip":
        """Before the first line."""
        return cls(0, _GENESIS)

    @classmethod
    def parse(cls, text: str) -> "Tip":
        """Read `SEQ:HASH`.

        Raises:
            MalformedError: it is something else.
        """
        seq, colon, found = text.partition(":")
        if not (colon and seq.isascii() and seq.isdecimal() and len(seq) <= 18 and _HASH.fullmatch(found)):
            raise MalformedError(
                f"malformed anchor {text!r}", hint="write it as SEQ:HASH, as 'rdc audit verify' prints it"
            )
        return cls(int(seq), found)

    def after(self, line: bytes) -> "Tip":
        """The end once `line` has been added."""
        return Tip(self.seq + 1, line_hash(line))

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A line as read: an entry in its place."""

    seq: int
    prev: str
    entry: Entry


def line_hash(line: bytes) -> str:
    """SHA-256 of the exact bytes, newline included, in hex."""
    return hashlib.sha256(line).hexdigest()


def chain(tip: Tip, entries: Iterable[Entry]) -> tuple[bytes, Tip]:
    """The entries as lines that go on from `tip`, and the new end."""
    lines = []
    for entry in entries:
        line = encode(Record(seq=tip.seq + 1, prev=tip.hash, entry=entry))
        lines.append(line)
        tip = tip.after(line)
    return b"".join(lines), tip


def encode(record: Record) -> bytes:
    """One line, at most `MAX_LINE_BYTES` long: texts beyond their limits end in `...`."""
    entry = record.entry
    document = {
        "seq": record.seq,
        "at": format_instant(entry.at),
        "event": str(entry.event),
        "actor": {
            "uid": entry.actor.uid,
            "gid": entry.actor.gid,
            "pid": entry.actor.pid,
            "login": _cut(entry.actor.login, _TEXT_MAX_BYTES),
            "sudo_user": _cut(entry.actor.sudo_user, _TEXT_MAX_BYTES),
        },
        "repo": None
        if entry.repo is None
        else {"name": _cut(entry.repo.name, _TEXT_MAX_BYTES), "guid": _cut(entry.repo.guid, _TEXT_MAX_BYTES)},
        "subject": _cut(entry.subject, _TEXT_MAX_BYTES),
        "rules": [_cut(rule, 64) for rule in entry.rules[:_RULES_MAX]],
        "detail": _cut(entry.detail, DETAIL_MAX_BYTES),
        "count": entry.count,
        **({"data": dict(entry.data)} if entry.data else {}),
        "prev": record.prev,
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def parse(line: bytes) -> Record:
    """Read one line, newline included. Unknown keys are for newer versions and left alone.

    Raises:
        MalformedError: it is no line of an audit log.
    """
    if not line.endswith(b"\n") or len(line) > MAX_LINE_BYTES:
        raise MalformedError("not one whole line")
    try:
        document: _Json = json.loads(line.decode("ascii"))
    except (ValueError, RecursionError) as exc:
        raise MalformedError("not JSON in ASCII") from exc
    if not isinstance(document, dict):
        raise MalformedError("not a JSON object")
    prev = _text(document, "prev")
    if not _HASH.fullmatch(prev):
        raise MalformedError("'prev' is not a SHA-256 in hex")
    seq = _number(document, "seq")
    if seq < 1:
        raise MalformedError("'seq' is not a positive number")
    return Record(seq=seq, prev=prev, entry=_entry(document))


def format_instant(instant: datetime) -> str:
    """UTC to the millisecond: `2026-11-30T12:00:00.000Z`."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _entry(document: dict[str, _Json]) -> Entry:
    actor, repo, rules = _object(document, "actor"), document.get("repo"), document.get("rules")
    if not isinstance(rules, list):
        raise MalformedError("'rules' is not a list")
    if repo is not None:
        repo = _object(document, "repo")
    data = _object(document, "data") if "data" in document else {}
    return Entry(
        at=_instant(_text(document, "at")),
        event=_text(document, "event"),
        actor=Actor(
            uid=_number(actor, "uid"),
            gid=_number(actor, "gid"),
            pid=_number(actor, "pid"),
            login=_text(actor, "login"),
            sudo_user=_text(actor, "sudo_user"),
        ),
        repo=None if repo is None else AuditedRepo(_text(repo, "name"), _text(repo, "guid")),
        subject=_text(document, "subject"),
        rules=tuple(str(rule) for rule in rules),
        detail=_text(document, "detail"),
        count=_number(document, "count"),
        data={key: value for key, value in data.items() if isinstance(value, str | int)},
    )


def _object(document: dict[str, _Json], key: str) -> dict[str, _Json]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise MalformedError(f"'{key}' is not an object")
    return value


def _text(document: dict[str, _Json], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise MalformedError(f"'{key}' is not a text")
    return value


def _number(document: dict[str, _Json], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedError(f"'{key}' is not a whole number")
    return value


def _instant(text: str) -> datetime:
    if not _INSTANT.fullmatch(text):
        raise MalformedError("'at' is not an instant in UTC to the millisecond")
    try:
        return datetime.fromisoformat(text)
    except ValueError as exc:
        raise MalformedError("'at' is no such instant") from exc


def _cut(text: str, limit: int) -> str:
    """The text, or as much of its beginning as takes `limit` bytes when encoded."""
    if len(text) * 12 <= limit or len(json.dumps(text)) - 2 <= limit:
        return text
    kept, left = [], limit - 3
    for character in text:
        left -= len(json.dumps(character)) - 2
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + "..."
