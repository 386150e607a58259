import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from cdi.core.names import QualifiedName
from gate.core.denial import Rule
from gate.core.policy import Unusable
from gate.core.repo import RepoPolicy
from gate.core.watch import (
    Event,
    Lawful,
    Lines,
    Permit,
    Reason,
    Run,
    RunKey,
    Tolerated,
    Unlawful,
    encode_memory,
    judge,
    parse_event,
    parse_memory,
    read_run,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SOON, LATER, PAST = NOW + timedelta(seconds=60), NOW + timedelta(hours=1), NOW - timedelta(seconds=1)
ZERO, ONE = QualifiedName.parse("nvidia.com/gpu=0"), QualifiedName.parse("nvidia.com/gpu=1")
KEY = RunKey("f" * 64, "2026-11-30T11:00:00.123456789Z")
GONE = Permit(reason=Unusable.MISSING)


@dataclasses.dataclass(frozen=True)
class Grants:
    permits: Mapping[QualifiedName, Permit]
    known: bool = True

    def permit(self, device: QualifiedName) -> Permit:
        return self.permits.get(device, GONE)


def live(until: datetime | None = None) -> Permit:
    return Permit(reason=None, until=until)


def lost(reason: Unusable) -> Permit:
    return Permit(reason=reason)


def run(*devices: QualifiedName, **more: object) -> Run:
    return Run(key=KEY, name="c", devices=devices, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("permits", "remembered", "verdict"),
    [
        ((live(), live()), False, Lawful(until=None)),
        ((live(LATER), live(SOON)), False, Lawful(until=SOON)),
        ((live(), GONE), False, Rule.GRANT_MISSING),
        ((GONE, GONE), False, Rule.GRANT_MISSING),
        ((GONE, lost(Unusable.EXPIRED)), False, Rule.GRANT_EXPIRED),
        ((lost(Unusable.DRIFTED), live()), False, Rule.GRANT_DRIFTED),
        ((lost(Unusable.OTHER), live()), False, Rule.GRANT_UNUSABLE),
        # A revoke, a drift or a missing spec leaves what was started lawfully; an end does not.
        ((GONE, live()), None, Tolerated()),
        ((GONE, live()), SOON, Tolerated()),
        ((GONE, live()), PAST, Rule.GRANT_EXPIRED),
        ((GONE, live()), NOW, Rule.GRANT_EXPIRED),
        ((lost(Unusable.DRIFTED), live()), None, Tolerated()),
        ((lost(Unusable.OTHER), live()), None, Tolerated()),
        ((lost(Unusable.EXPIRED), live()), None, Rule.GRANT_EXPIRED),
        ((GONE, lost(Unusable.EXPIRED)), SOON, Rule.GRANT_EXPIRED),
        ((live(), live(LATER)), PAST, Lawful(until=LATER)),
    ],
)
def test_what_becomes_of_a_run(
    permits: tuple[Permit, Permit], remembered: datetime | bool | None, verdict: object
) -> None:
    memory = {} if isinstance(remembered, bool) else {KEY: remembered}
    found = judge(run(ZERO, ONE), Grants(dict(zip((ZERO, ONE), permits, strict=True))), memory, NOW)
    if isinstance(found, Unlawful):
        assert found.reason.rule is verdict
        assert found.reason.detail
    else:
        assert found == verdict


def test_another_run_of_the_same_container_is_not_remembered() -> None:
    other = RunKey(KEY.container, "2026-11-30T11:59:00Z")
    assert isinstance(judge(run(ZERO), Grants({}), {other: None}, NOW), Unlawful)


def test_while_no_grant_can_be_read_nothing_is_stopped_for_it() -> None:
    assert judge(run(ZERO), Grants({}, known=False), {}, NOW) == Tolerated()
    raw = Reason(rule=Rule.PRIVILEGED, detail="x")
    assert judge(run(raw=(raw,)), Grants({}, known=False), {KEY: None}, NOW) == Unlawful(reason=raw)


PERMITS = st.sampled_from([live(), live(SOON), GONE, *(lost(each) for each in Unusable)])


@given(
    st.tuples(PERMITS, PERMITS), st.sampled_from([False, None, SOON, PAST]), st.sampled_from(list(Unusable))
)
def test_taking_a_grant_away_never_makes_a_run_lawful(
    permits: tuple[Permit, Permit], remembered: datetime | bool | None, reason: Unusable
) -> None:
    memory = {} if isinstance(remembered, bool) else {KEY: remembered}
    before = judge(run(ZERO, ONE), Grants(dict(zip((ZERO, ONE), permits, strict=True))), memory, NOW)
    after = judge(run(ZERO, ONE), Grants({ZERO: lost(reason), ONE: permits[1]}), memory, NOW)
    assert not isinstance(after, Lawful)
    if isinstance(before, Unlawful) and permits[0].reason in (None, reason):
        assert isinstance(after, Unlawful)


def inspected(host: Mapping[str, object], **state: object) -> dict[str, object]:
    return {
        "Id": KEY.container,
        "Name": "/c",
        "HostConfig": host,
        "State": {"Running": True, "StartedAt": KEY.started_at, **state},
    }


def cdi(*names: str) -> dict[str, object]:
    return {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": list(names)}]}


def test_a_run_is_read() -> None:
    found = read_run(inspected({**cdi(str(ONE), str(ZERO), str(ONE)), "Runtime": "runc"}), RepoPolicy())
    assert found == run(ONE, ZERO)
    plain = read_run(inspected({"Runtime": "runc", "Devices": [], "DeviceRequests": None}), RepoPolicy())
    assert plain is not None
    assert plain.plain


@pytest.mark.parametrize("state", [{"Running": False}, {"Restarting": True}, {"Running": None}])
def test_what_does_not_run_is_no_run(state: dict[str, object]) -> None:
    assert read_run(inspected(cdi(str(ZERO)), **state), RepoPolicy()) is None
    assert read_run({**inspected({}), "State": None}, RepoPolicy()) is None


def test_a_paused_container_still_holds_what_it_has() -> None:
    assert read_run(inspected(cdi(str(ZERO)), Paused=True), RepoPolicy()) == run(ZERO)


@pytest.mark.parametrize(
    ("host", "rule"),
    [
        ({"Privileged": True}, Rule.PRIVILEGED),
        ({"Devices": [{"PathOnHost": "/dev/nvidia0"}]}, Rule.RAW_DEVICE),
        ({"DeviceCgroupRules": ["c 195:* rwm"]}, Rule.DEVICE_CGROUP_RULE),
        ({"DeviceRequests": [{"Driver": "nvidia", "Count": -1}]}, Rule.DEVICE_DRIVER),
        ({"DeviceRequests": [{"Driver": "", "Capabilities": [["gpu"]]}]}, Rule.DEVICE_DRIVER),
        (cdi("all"), Rule.CDI_NAME),
        ({"Runtime": "nvidia"}, Rule.RUNTIME),
        ({"Runtime": "io.containerd.kata.v2"}, Rule.RUNTIME),
    ],
)
def test_hardware_without_a_name_must_end(host: dict[str, object], rule: Rule) -> None:
    found = read_run(inspected(host), RepoPolicy())
    assert found is not None
    assert [each.rule for each in found.raw] == [rule]
    verdict = judge(found, Grants({}), {KEY: None}, NOW)
    assert isinstance(verdict, Unlawful)


def test_another_runtime_is_told_unless_the_policy_has_it() -> None:
    found = read_run(inspected({"Runtime": "runsc"}), RepoPolicy())
    assert found is not None
    assert [each.rule for each in found.odd] == [Rule.RUNTIME]
    assert judge(found, Grants({}), {}, NOW) == Lawful(until=None)
    allowed = read_run(inspected({"Runtime": "runsc"}), RepoPolicy(runtimes=("runsc",)))
    assert allowed is not None
    assert allowed.plain


def test_what_is_no_container_is_an_error() -> None:
    with pytest.raises(MalformedError):
        read_run({"Id": 7}, RepoPolicy())


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"Type":"container","Action":"start","Actor":{"ID":"f"},"timeNano":7}',
         Event(kind="container", action="start", id="f", at_ns=7)),
        (b'{"Type":"daemon","Action":"reload"}', Event(kind="daemon", action="reload", id="", at_ns=0)),
        (b"[]", None),
        (b"{", None),
    ],
)  # fmt: skip
def test_events(line: bytes, event: Event | None) -> None:
    assert parse_event(line) == event


@given(st.binary(max_size=60))
def test_events_are_total(line: bytes) -> None:
    parse_event(line)


@given(st.lists(st.binary(max_size=12), max_size=8), st.integers(1, 7))
def test_lines_are_the_same_however_they_arrive(parts: list[bytes], size: int) -> None:
    data = b"\n".join(parts) + b"\n"
    lines = Lines(limit=1000)
    found = [line for start in range(0, len(data), size) for line in lines.feed(data[start : start + size])]
    assert found == [line for line in data.split(b"\n") if line.strip()]
    assert lines.dropped == 0


def test_a_line_that_never_ends_is_dropped_and_the_next_one_is_read() -> None:
    lines = Lines(limit=10)
    for _ in range(1000):
        assert lines.feed(b"x" * 11) == []
    assert lines.dropped == 1
    assert lines.feed(b"x\nnext\n") == [b"next"]


MEMORIES = st.dictionaries(
    st.builds(RunKey, st.text(max_size=5), st.text(max_size=5)), st.none() | st.just(SOON) | st.just(LATER)
)


@given(MEMORIES)
def test_memory_is_read_as_it_was_written(memory: dict[RunKey, datetime | None]) -> None:
    assert parse_memory(encode_memory(memory)) == memory


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b'{"schema_version": 2, "runs": []}', b'{"schema_version": 1}',
            b'{"schema_version": 1, "runs": [["a"]]}', b'{"schema_version": 1, "runs": [["a", 1, null]]}',
            b'{"schema_version": 1, "runs": [["a", "b", "tomorrow"]]}', b'{"schema_version": 1, "runs": 7}'],
)  # fmt: skip
def test_other_memory_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_memory(raw)
