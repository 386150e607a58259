"""What a watcher makes of the containers that run: which hold devices lawfully, and which must end. Pure.

The rule. A *run* is a container between one start and its end, named by its id and `StartedAt`. A run is
lawful once it was seen while every device it holds had a live grant; it is remembered together with the
earliest end of those grants. It may go on after a revoke (an operator who wants it gone says `--stop`), until
the end that its grants had. Everything else that holds a device without a live grant is stopped: a run that
was never seen lawful, a run whose grant has expired, and whatever reaches hardware without a CDI name.

Source: Docker Engine API, `GET /containers/{id}/json` and `GET /events`; facts page on gates, section 2.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast

import jiter

from base.errors import MalformedError
from cdi.core.names import QualifiedName
from gate.core.denial import Rule, show
from gate.core.facts import ContainerFact
from gate.core.model import HostConfig
from gate.core.policy import Unusable
from gate.core.repo import RepoPolicy
from gate.core.sandbox import RUNC
from grants.core.model import format_instant, parse_instant

SCHEMA_VERSION = 1

_HARDWARE_RUNTIME = re.compile(r"nvidia|amd|habana|kata|sysbox|krun", re.IGNORECASE)
_REASONS = {
    Unusable.MISSING: (Rule.GRANT_MISSING, "is not granted"),
    Unusable.EXPIRED: (Rule.GRANT_EXPIRED, "was granted and has expired"),
    Unusable.DRIFTED: (Rule.GRANT_DRIFTED, "no longer means what it meant when granted"),
    Unusable.OTHER: (Rule.GRANT_UNUSABLE, "cannot be used now"),
}


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """One run of one container: its full id, and `StartedAt` as the daemon writes it."""

    container: str
    started_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a run is not as it should be; `rule` is stable."""

    rule: Rule
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A container that runs now.

    `devices` are its CDI devices, `raw` what it reaches past CDI (it must end), `odd` what the gate would not
    have let through and which opens no hardware (it is told).
    """

    key: RunKey
    name: str
    devices: tuple[QualifiedName, ...] = ()
    raw: tuple[Reason, ...] = ()
    odd: tuple[Reason, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether there is nothing to watch."""
        return not (self.devices or self.raw or self.odd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What has become of the grant of one device: None in `reason` while it is live, until `until`."""

    reason: Unusable | None
    until: datetime | None = None
    detail: str = ""


class Permits(Protocol):
    """One repo's grants at one instant."""

    @property
    def known(self) -> bool:
        """Whether the grants could be read at all."""
        ...

    def permit(self, device: QualifiedName) -> Permit:
        """What has become of this device's grant."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lawful:
    """It holds what is granted, until the earliest end of its grants; None for no end."""

    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerated:
    """Its grant was revoked and it was lawful before; or nothing can be told at present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlawful:
    """It must end."""

    reason: Reason


Verdict = Lawful | Tolerated | Unlawful
Memory = Mapping[RunKey, datetime | None]
"""The runs that were seen lawful, with the earliest end of their grants."""


def judge(run: Run, permits: Permits, memory: Memory, now: datetime) -> Verdict:
    """What becomes of a run. Total."""
    if run.raw:
        return Unlawful(reason=run.raw[0])
    if not permits.known:
        return Tolerated()  # the store is damaged: it is judged as soon as it can be read
    found = {device: permits.permit(device) for device in run.devices}
    faults = {device: permit for device, permit in found.items() if permit.reason is not None}
    if not faults:
        return Lawful(until=min((each.until for each in found.values() if each.until), default=None))
    expired = [device for device, permit in faults.items() if permit.reason is Unusable.EXPIRED]
    if not expired and run.key in memory:
        until = memory[run.key]
        if until is None or now < until:
            return Tolerated()
        ended = f"was started under a grant that ended at {format_instant(until)}"
        return Unlawful(reason=Reason(rule=Rule.GRANT_EXPIRED, detail=f"{next(iter(faults))} {ended}"))
    device = expired[0] if expired else next(iter(faults))
    rule, words = _REASONS[cast("Unusable", faults[device].reason)]
    detail = faults[device].detail
    return Unlawful(reason=Reason(rule=rule, detail=f"{device} {words}" + (f": {detail}" if detail else "")))


def read_run(answer: Mapping[str, object], policy: RepoPolicy) -> Run | None:
    """The run that an inspected container is in; None when it is in none.

    One that waits for its next restart holds nothing, and its next start will be told.

    Raises:
        MalformedError: this is no container.
    """
    fact = ContainerFact.parse(answer)
    state = answer.get("State")
    if not isinstance(state, Mapping) or state.get("Running") is not True or state.get("Restarting") is True:
        return None
    key = RunKey(fact.id, str(state.get("StartedAt") or ""))
    devices: dict[QualifiedName, None] = {}
    raw: list[Reason] = []
    for request in fact.host_config.device_requests or ():
        if request.driver != "cdi":
            words = f"device driver {show(request.driver)} gave it devices that have no CDI name"
            raw.append(Reason(rule=Rule.DEVICE_DRIVER, detail=words))
            continue
        for text in request.device_ids or ():
            try:
                devices[QualifiedName.parse(text)] = None
            except MalformedError:
                raw.append(Reason(rule=Rule.CDI_NAME, detail=f"{show(text)} is not a CDI name"))
    raw.extend(_raw(fact.host_config, policy))
    return Run(
        key=key,
        name=fact.name.removeprefix("/"),
        devices=tuple(devices),
        raw=tuple(raw),
        odd=tuple(_odd(fact.host_config, policy)),
    )


def _raw(host: HostConfig, policy: RepoPolicy) -> Iterator[Reason]:
    if host.privileged:
        yield Reason(rule=Rule.PRIVILEGED, detail="it is privileged")
    for mapping in host.devices or ():
        yield Reason(rule=Rule.RAW_DEVICE, detail=f"it has host device {show(mapping.path_on_host)}")
    for text in host.device_cgroup_rules or ():
        yield Reason(rule=Rule.DEVICE_CGROUP_RULE, detail=f"it has device cgroup rule {show(text)}")
    if _foreign_runtime(host, policy) and _HARDWARE_RUNTIME.search(host.runtime):
        yield Reason(rule=Rule.RUNTIME, detail=f"runtime {show(host.runtime)} brings hardware")


def _odd(host: HostConfig, policy: RepoPolicy) -> Iterator[Reason]:
    if _foreign_runtime(host, policy) and not _HARDWARE_RUNTIME.search(host.runtime):
        yield Reason(rule=Rule.RUNTIME, detail=f"runtime {show(host.runtime)} is not of the repo's policy")


def _foreign_runtime(host: HostConfig, policy: RepoPolicy) -> bool:
    return host.runtime not in RUNC and host.runtime not in policy.runtimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of `GET /events`: what happened to what, in nanoseconds since 1970."""

    kind: str
    action: str
    id: str
    at_ns: int


def parse_event(line: bytes) -> Event | None:
    """An event; None for a line that is none."""
    try:
        value = jiter.from_json(line)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    actor, at_ns = value.get("Actor"), value.get("timeNano")
    return Event(
        kind=str(value.get("Type")),
        action=str(value.get("Action")),
        id=str(actor.get("ID")) if isinstance(actor, dict) else "",
        at_ns=at_ns if isinstance(at_ns, int) else 0,
    )


class Lines:
    """Cuts a stream into lines, and drops one longer than `limit` bytes: labels come from users."""

    __slots__ = ("_dropping", "_limit", "_part", "dropped")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._part = b""
        self._dropping = False
        self.dropped = 0
        """How many lines were too long."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now, without their ends and without empty ones."""
        *whole, self._part = (self._part + data).split(b"\n")
        if whole and self._dropping:
            whole.pop(0)
            self._dropping = False
        if len(self._part) > self._limit:
            self.dropped += not self._dropping
            self._part, self._dropping = b"", True
        return [line for line in whole if line.strip()]


def encode_memory(memory: Memory) -> bytes:
    """The file that keeps the memory over a restart of the gate."""
    runs = [
        [key.container, key.started_at, None if until is None else format_instant(until)]
        for key, until in sorted(memory.items(), key=lambda item: item[0])
    ]
    return (json.dumps({"schema_version": SCHEMA_VERSION, "runs": runs}, indent=1) + "\n").encode()


def parse_memory(raw: bytes) -> Memory:
    """The file's content.

    Raises:
        MalformedError: it is not what `encode_memory` writes.
    """
    try:
        document: object = json.loads(raw)
        if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
            raise MalformedError("not a memory of runs of this schema version")
        memory: dict[RunKey, datetime | None] = {}
        for container, started_at, until in document["runs"]:
            if not isinstance(container, str) or not isinstance(started_at, str):
                raise MalformedError("a run is not named by two texts")
            memory[RunKey(container, started_at)] = None if until is None else parse_instant(until)
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise MalformedError(f"not a memory of runs: {type(exc).__name__}") from exc
    return memory
