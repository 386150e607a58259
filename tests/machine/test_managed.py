from pathlib import Path

import pytest

from base.errors import MalformedError
from base.layout import Layout
from gate.repos import RepoFiles
from machine.managed import ManagedDaemons
from machine.renaming import rename
from machine.repos import NewRepo, create
from tests.fake_clock import FakeClock


@pytest.fixture
def layout(short_dir: Path) -> Layout:
    return Layout(short_dir)


def test_only_repos_without_upstream_have_daemons_of_ours(layout: Layout) -> None:
    own = create(layout, NewRepo(name="own"))
    create(layout, NewRepo(name="foreign", upstream="unix:///tmp/foreign.sock"))
    (daemon,) = ManagedDaemons(layout, {})()
    assert (daemon.guid, daemon.name) == (own.guid, "own")


def test_runtimes_of_the_policy_besides_runc(layout: Layout) -> None:
    config = create(layout, NewRepo(name="own"))
    path = RepoFiles(layout).path(config.name)
    path.write_text(path.read_text().replace("runtimes: []", "runtimes: [runc, runsc]"))
    (daemon,) = ManagedDaemons(layout, {})()
    assert daemon.runtimes == ("runsc",)


def test_a_file_that_cannot_be_read_keeps_its_daemon(layout: Layout) -> None:
    config = create(layout, NewRepo(name="own"))
    daemons = ManagedDaemons(layout, {})
    before = daemons()
    path = RepoFiles(layout).path(config.name)
    good = path.read_text()
    path.write_text("name: [")
    assert daemons() == before
    path.unlink()
    assert daemons() == ()
    path.write_text(good)
    assert daemons() == before


def test_the_fingerprint_follows_repos_and_settings(layout: Layout) -> None:
    daemons = ManagedDaemons(layout, {})
    seen = [daemons.fingerprint()]
    create(layout, NewRepo(name="own"))
    seen.append(daemons.fingerprint())
    layout.gate_config.write_text("schema_version: 1\nengine: {network: none}\n")
    seen.append(daemons.fingerprint())
    assert len(set(seen)) == 3
    assert daemons.fingerprint() == seen[-1]


def test_settings_that_cannot_be_read_are_an_error(layout: Layout) -> None:
    create(layout, NewRepo(name="own"))
    layout.gate_config.write_text("[")
    with pytest.raises(MalformedError):
        ManagedDaemons(layout, {})()


def test_a_renamed_repo_keeps_its_daemon(layout: Layout) -> None:
    create(layout, NewRepo(name="own"))
    daemons = ManagedDaemons(layout, {})
    before, seen = daemons(), daemons.fingerprint()
    rename(layout, "own", "renamed", FakeClock())
    assert daemons.fingerprint() != seen
    (after,) = daemons()
    assert (after,) == before
    assert after.name == "renamed"
    assert after.log == before[0].log


def test_bind_roots_are_its_own_and_those_of_others_above(layout: Layout, tmp_path: Path) -> None:
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    for name, root in (("own", inner), ("above", tmp_path / "link"), ("beside", tmp_path / "a/bc")):
        root.mkdir(exist_ok=True)
        create(layout, NewRepo(name=name, bind_roots=(str(root),)))
    roots = {daemon.name: daemon.bind_roots for daemon in ManagedDaemons(layout, {})()}
    (above,) = [each.policy.bind_roots for each in RepoFiles(layout).list().repos if each.name == "above"]
    assert roots == {
        "own": tuple(sorted((*above, str(inner)))),
        "above": above,
        "beside": tuple(sorted((*above, str(tmp_path / "a/bc")))),
    }


def test_other_bind_roots_are_no_reason_to_restart(layout: Layout, tmp_path: Path) -> None:
    config = create(layout, NewRepo(name="own"))
    daemons = ManagedDaemons(layout, {})
    (before,) = daemons()
    path = RepoFiles(layout).path(config.name)
    path.write_text(path.read_text().replace("bind_roots: []", f"bind_roots: [{tmp_path}]"))
    (after,) = daemons()
    assert after == before
    assert after.bind_roots == (str(tmp_path),)
