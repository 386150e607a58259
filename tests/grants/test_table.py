"""The table against a plain dictionary."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cdi.core.names import QualifiedName
from cdi.core.pin import Pin
from grants.core.model import Grant, RepoGuid, Sharing
from grants.core.table import GrantTable
from tests.grants.cards import NOW, A, B
from tests.grants.strategies import grants, guids, names

_NOWS = st.integers(0, 250_000_000_000).map(lambda second: datetime.fromtimestamp(second, UTC))


def build(rows: list[Grant]) -> GrantTable:
    table = GrantTable.empty()
    for row in rows:
        table = table.with_grant(row)
    return table


def model(rows: list[Grant]) -> dict[tuple[RepoGuid, str], Grant]:
    held = {(row.repo, str(row.device)): row for row in rows}
    return {key: held[key] for key in sorted(held)}


@given(st.lists(grants(), max_size=12), guids(), names())
def test_look_ups(rows: list[Grant], guid: RepoGuid, name: QualifiedName) -> None:
    table, expected = build(rows), model(rows)
    assert list(table) == list(expected.values())
    assert len(table) == len(expected)
    assert table.repos == tuple(sorted({repo for repo, _ in expected}))
    for row in expected.values():
        assert table.get(row.repo, row.device) == row
        assert table.of_repo(row.repo) == tuple(each for each in expected.values() if each.repo == row.repo)
        assert table.holders_of(row.device) == tuple(
            each for each in expected.values() if each.device == row.device
        )
    if (guid, str(name)) not in expected:
        assert table.get(guid, name) is None


@given(st.lists(grants(), min_size=1, max_size=12), st.data())
def test_taking_away(rows: list[Grant], data: st.DataObject) -> None:
    table, expected = build(rows), model(rows)
    gone = data.draw(st.sampled_from(list(expected.values())))
    left = [row for row in expected.values() if row is not gone]
    assert list(table.without(gone.repo, gone.device)) == left
    assert list(table.without_repo(gone.repo)) == [row for row in left if row.repo != gone.repo]
    assert list(table) == list(expected.values()), "a table never changes"


@given(st.lists(grants(), max_size=12), _NOWS)
def test_ends(rows: list[Grant], now: datetime) -> None:
    table, expected = build(rows), model(rows)
    assert list(table.without_expired(now)) == [row for row in expected.values() if row.live(now)]
    ends = [row.expires_at for row in expected.values() if row.expires_at and row.live(now)]
    assert table.next_expiry(now) == min(ends, default=None)


@given(st.lists(grants(), max_size=12), _NOWS)
def test_holdings_are_the_live_grants_by_name_and_meaning(rows: list[Grant], now: datetime) -> None:
    table, expected = build(rows), model(rows)
    found = {
        (holding.device, holding.pin, repo, sharing)
        for holding in table.holdings(now)
        for sharing, repos in ((Sharing.SHARED, holding.shared), (Sharing.EXCLUSIVE, holding.exclusive))
        for repo in repos
    }
    assert found == {
        (row.device, row.pin, row.repo, row.sharing) for row in expected.values() if row.live(now)
    }
    assert all(not holding.without(A).shared.count(A) for holding in table.holdings(now))


@given(st.lists(grants(), max_size=12))
def test_the_next_generation_keeps_grants_and_drops_unused_pins(rows: list[Grant]) -> None:
    table = build(rows)
    for row in list(table)[::2]:
        table = table.without(row.repo, row.device)
    following = table.next_generation()
    assert following.generation == table.generation + 1
    assert list(following) == list(table)
    assert set(following.pins.values()) == {row.pin for row in table}


def test_grants_of_one_meaning_share_a_pin() -> None:
    pin = Pin(uuids=("GPU-1",))
    name = QualifiedName.parse("nvidia.com/gpu=0")
    rows = [
        Grant(
            repo=repo,
            device=name,
            sharing=Sharing.SHARED,
            isolation=None,
            vram_mb=None,
            expires_at=NOW + timedelta(hours=1),
            granted_at=NOW,
            granted_by="root",
            note="",
            pin=pin,
        )
        for repo in (A, B)
    ]
    assert list(build(rows).pins.values()) == [pin]
