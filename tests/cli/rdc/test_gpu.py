import json
from pathlib import Path

import pytest

from tests.cli.rdc.runner import SPEC, Rdc
from tests.fake_daemon import fake_daemon

DEVICE = "nvidia.com/gpu=0"
LIST = (
    "GET /containers/json?filters=%7B%22status%22%3A%5B%22running%22%2C%22paused%22%2C%22restarting%22%5D%7D"
)


@pytest.fixture(autouse=True)
def _spec(rdc: Rdc) -> None:
    rdc.write_spec()


def info(spec_dir: str, *devices: str, version: str = "28.5.2") -> tuple[int, object]:
    found = [{"Source": "cdi", "ID": each} for each in devices]
    return 200, {"ServerVersion": version, "CDISpecDirs": [spec_dir], "DiscoveredDevices": found}


def test_a_grant_is_recorded_projected_and_listed(rdc: Rdc) -> None:
    made = rdc.create("a")
    done = rdc.json(
        "repo", "gpu", "grant", "a", "--device", DEVICE, "--exclusive", "--vram-mb", "4096", "--note", "n"
    )
    assert done.code == 0
    row = done.rows[0]
    assert (row["repo"], row["guid"], row["device"], row["sharing"]) == (
        "a",
        made["guid"],
        DEVICE,
        "exclusive",
    )
    assert (row["vram_mb"], row["note"], row["expires_at"], row["isolation"]) == (4096, "n", None, None)
    assert row["resolvable"] is None
    projected = [json.loads(path.read_text()) for path in Path(made["cdi_spec_dir"]).iterdir()]
    assert [device["name"] for spec in projected for device in spec["devices"]] == ["0"]
    listed = rdc.json("repo", "gpu", "list").rows
    assert [(each["repo"], each["device"], each["status"]) for each in listed] == [("a", DEVICE, "live")]
    assert rdc.json("repo", "gpu", "list", "a").rows == listed


@pytest.mark.parametrize(("form", "out"), [("json", "[]\n"), ("table", "")])
def test_nothing_granted(rdc: Rdc, form: str, out: str) -> None:
    rdc.create("a")
    for words in ((), ("a",)):
        done = rdc("repo", "gpu", "list", *words, "-o", form)
        assert (done.code, done.out) == (0, out)
        assert done.err


def test_several_devices_are_granted_together_or_not_at_all(rdc: Rdc) -> None:
    rdc.create("a")
    done = rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE, "--device", "nvidia.com/gpu=7")
    assert done.code == 3
    assert rdc.devices() == []
    done = rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE, "--device", "nvidia.com/gpu=1")
    assert done.code == 0
    assert rdc.devices() == [DEVICE, "nvidia.com/gpu=1"]


@pytest.mark.parametrize(
    ("device", "code", "word"),
    [
        ("nvidia.com/gpu=9", "unknown-device", "nvidia.com/gpu=0"),
        ("NVIDIA.com/gpu=0", "unknown-device", "nvidia.com/gpu=0"),
        ("gpu0", "malformed-device", ""),
        ("", "malformed-device", ""),
    ],
)
def test_names_that_are_not_on_the_machine(rdc: Rdc, device: str, code: str, word: str) -> None:
    rdc.create("a")
    done = rdc.json("repo", "gpu", "grant", "a", "--device", device)
    assert (done.code, done.error["code"], done.out) == (3, code, "")
    assert word in done.error["hint"]


def test_of_a_name_that_two_specs_define_no_other_card_is_suggested(rdc: Rdc) -> None:
    rdc.create("a")
    (rdc.spec_dir / "other.yaml").write_text(SPEC.replace("/dev/zero", "/dev/random").replace('"1"', '"2"'))
    error = rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE).error
    assert error["code"] == "unknown-device"
    assert "conflicting" in error["message"]
    assert "nvidia.com/gpu" not in error["hint"]
    error = rdc.json("repo", "gpu", "grant", "a", "--device", "nvidia.com/gpu=9").error
    assert "other.yaml" not in error["message"]


def test_an_exclusive_card_is_refused_under_every_name(rdc: Rdc) -> None:
    rdc.create("a")
    rdc.create("b")
    assert rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE, "--exclusive").code == 0
    for device in (DEVICE, "nvidia.com/gpu=all"):
        assert rdc.json("repo", "gpu", "grant", "b", "--device", device).code == 3
    assert rdc.json("repo", "gpu", "grant", "b", "--device", "nvidia.com/gpu=1").code == 0


def test_a_dry_run_says_the_same_and_changes_nothing(rdc: Rdc) -> None:
    made = rdc.create("a")
    done = rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE, "--dry-run")
    assert (done.code, done.rows[0]["device"]) == (0, DEVICE)
    assert rdc.devices() == []
    assert list(Path(made["cdi_spec_dir"]).iterdir()) == []
    assert rdc.json("repo", "gpu", "grant", "a", "--device", "x.y/z=1", "--dry-run").code == 3


@pytest.mark.parametrize(
    "words",
    [
        (), ("--device",), ("--device", DEVICE, "--expires", "soon"), ("--device", DEVICE, "--vram-mb", "0"),
        ("--device", DEVICE, "--vram-mb", "x"), ("--device", DEVICE, "--isolation", "magic"),
    ],
)  # fmt: skip
def test_commands_that_cannot_be_carried_out_as_written(rdc: Rdc, words: tuple[str, ...]) -> None:
    rdc.create("a")
    done = rdc.json("repo", "gpu", "grant", "a", *words)
    assert done.code == 2
    assert rdc.devices() == []


def test_who_granted_is_recorded(rdc: Rdc, monkeypatch: pytest.MonkeyPatch) -> None:
    rdc.create("a")
    monkeypatch.setenv("SUDO_USER", "mallory")
    assert rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE).rows[0]["granted_by"] == "mallory"


def test_a_grant_returns_when_the_daemon_lists_the_device(rdc: Rdc) -> None:
    made = rdc.create("a", "--upstream", f"unix://{rdc.root}/d.sock")
    with fake_daemon(rdc.root / "d.sock", {"GET /info": info(made["cdi_spec_dir"], DEVICE)}):
        done = rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    assert done.code == 0
    assert done.rows[0]["resolvable"] is True
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("spec_dirs", "word"), [([], '"features": {"cdi": true}'), (["/etc/cdi"], '"cdi-spec-dirs"')]
)
def test_a_grant_that_the_daemon_cannot_use_yet_says_what_to_configure(
    rdc: Rdc, spec_dirs: list[str], word: str
) -> None:
    rdc.create("a", "--upstream", f"unix://{rdc.root}/d.sock")
    said = {"ServerVersion": "28.5.2", "CDISpecDirs": spec_dirs}
    with fake_daemon(rdc.root / "d.sock", {"GET /info": (200, said)}):
        done = rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    assert done.code == 0
    assert done.rows[0]["resolvable"] is False
    assert word in done.err
    assert rdc.devices() == [DEVICE]


def test_an_older_daemon_cannot_tell(rdc: Rdc) -> None:
    made = rdc.create("a", "--upstream", f"unix://{rdc.root}/d.sock")
    with fake_daemon(rdc.root / "d.sock", {"GET /info": info(made["cdi_spec_dir"], version="26.1.5")}):
        assert rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE).rows[0]["resolvable"] is None


@pytest.mark.parametrize("words", [(), ("--all", "--device", DEVICE)])
def test_a_revoke_says_which_devices(rdc: Rdc, words: tuple[str, ...]) -> None:
    rdc.create("a")
    assert rdc.json("repo", "gpu", "revoke", "a", *words).code == 2


def test_what_is_revoked_is_gone_from_store_and_projection(rdc: Rdc) -> None:
    made = rdc.create("a")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE, "--device", "nvidia.com/gpu=1")
    done = rdc.json("repo", "gpu", "revoke", "a", "--device", DEVICE)
    assert (done.code, [row["device"] for row in done.rows]) == (0, [DEVICE])
    assert rdc.devices() == ["nvidia.com/gpu=1"]
    projected = [json.loads(path.read_text()) for path in Path(made["cdi_spec_dir"]).iterdir()]
    assert [device["name"] for spec in projected for device in spec["devices"]] == ["1"]
    assert rdc.json("repo", "gpu", "revoke", "a", "--all").code == 0
    assert list(Path(made["cdi_spec_dir"]).iterdir()) == []
    assert rdc.json("repo", "gpu", "revoke", "a", "--all").rows == []


def test_a_revoke_says_what_it_revoked(rdc: Rdc) -> None:
    rdc.create("a")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    assert f"revoked {DEVICE} from repo a" in rdc("repo", "gpu", "revoke", "a", "--all").err


def test_revoking_what_is_not_held_revokes_nothing(rdc: Rdc) -> None:
    rdc.create("a")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    done = rdc.json("repo", "gpu", "revoke", "a", "--device", DEVICE, "--device", "nvidia.com/gpu=1")
    assert (done.code, done.error["code"]) == (5, "not-granted")
    assert rdc.devices() == [DEVICE]


def holding(*devices: str) -> dict[str, tuple[int, object]]:
    requests = [{"Driver": "cdi", "DeviceIDs": list(devices)}]
    inspected = {"Id": "c" * 64, "Name": "/job", "HostConfig": {"DeviceRequests": requests}}
    return {
        LIST: (200, [{"Id": "c" * 64}]),
        f"GET /containers/{'c' * 64}/json": (200, inspected),
        f"POST /containers/{'c' * 64}/stop?t=10": (204, b""),
    }


@pytest.mark.parametrize("stop", [False, True])
def test_containers_that_hold_a_revoked_device_are_reported_and_stopped_on_request(
    rdc: Rdc, stop: bool
) -> None:
    rdc.create("a", "--upstream", f"unix://{rdc.root}/d.sock")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    with fake_daemon(rdc.root / "d.sock", holding(DEVICE)) as daemon:
        done = rdc.json("repo", "gpu", "revoke", "a", "--all", *(["--stop"] if stop else []))
    assert done.code == 0
    assert "job" in done.err
    told = [{"id": "c" * 64, "name": "job"}]
    row = done.rows[0]
    assert (row["holders"], row["stopped"]) == (([], told) if stop else (told, []))
    assert any(asked.startswith("POST") for asked in daemon.asked) is stop


def test_containers_with_other_devices_are_left_alone(rdc: Rdc) -> None:
    rdc.create("a", "--upstream", f"unix://{rdc.root}/d.sock")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    with fake_daemon(rdc.root / "d.sock", holding("nvidia.com/gpu=1")) as daemon:
        done = rdc("repo", "gpu", "revoke", "a", "--all", "--stop")
    assert "job" not in done.err
    assert not [asked for asked in daemon.asked if asked.startswith("POST")]


def test_that_holders_are_not_known_is_said(rdc: Rdc) -> None:
    rdc.create("a")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    done = rdc.json("repo", "gpu", "revoke", "a", "--all")
    assert done.code == 0
    assert "not known" in done.err
    assert (done.rows[0]["holders"], done.rows[0]["stopped"]) == (None, [])


SWAPPED = SPEC.replace("/dev/zero", "/dev/x").replace("/dev/full", "/dev/zero").replace("/dev/x", "/dev/full")


def drifted(rdc: Rdc) -> None:
    """Two repos hold a card each, and the cards have changed places."""
    for name, device in (("a", DEVICE), ("b", "nvidia.com/gpu=1")):
        rdc.create(name)
        rdc.json("repo", "gpu", "grant", name, "--device", device, "--exclusive", "--note", f"of {name}")
    rdc.write_spec(SWAPPED)
    assert [row["status"] for row in rdc.json("repo", "gpu", "list").rows] == ["drifted", "drifted"]


def test_drifted_grants_are_renewed_knowingly(rdc: Rdc) -> None:
    drifted(rdc)
    alone = rdc.json("repo", "gpu", "regrant", "a", "--yes")
    assert (alone.code, alone.error["code"]) == (3, "overlaps-exclusive")
    unsure = rdc.json("repo", "gpu", "regrant", "--all")
    assert (unsure.code, unsure.error["code"]) == (2, "usage")
    assert "device nodes were" in unsure.err
    dry = rdc.json("repo", "gpu", "regrant", "--all", "--dry-run")
    assert [row["status"] for row in rdc.json("repo", "gpu", "list").rows] == ["drifted", "drifted"]
    done = rdc.json("repo", "gpu", "regrant", "--all", "--yes")
    assert done.code == 0, done.err
    assert [(row["repo"], row["note"], row["change"]) for row in done.rows] == [
        (row["repo"], row["note"], row["change"]) for row in dry.rows
    ]
    assert [(row["repo"], row["note"]) for row in done.rows] == [("a", "of a"), ("b", "of b")]
    listed = rdc.json("repo", "gpu", "list").rows
    assert [(row["status"], row["sharing"]) for row in listed] == [("live", "exclusive")] * 2
    again = rdc.json("repo", "gpu", "regrant", "--all", "--yes")
    assert (again.code, again.rows) == (0, [])
    events = [row["event"] for row in rdc.json("audit", "tail").rows]
    assert events[-2:] == ["grant.granted", "grant.granted"]


def test_containers_keep_what_a_renewed_name_meant(rdc: Rdc) -> None:
    rdc.create("a", "--upstream", f"unix://{rdc.root}/d.sock")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    rdc.write_spec(SWAPPED)
    with fake_daemon(rdc.root / "d.sock", holding(DEVICE)):
        done = rdc.json("repo", "gpu", "regrant", "a", "--device", DEVICE, "--yes")
    assert done.code == 0, done.err
    assert "container job (cccccccccccc) of repo a keeps what it was started with" in done.err


@pytest.mark.parametrize("words", [(), ("a", "--all")])
def test_a_regrant_says_whose_grants(rdc: Rdc, words: tuple[str, ...]) -> None:
    rdc.create("a")
    assert rdc.json("repo", "gpu", "regrant", *words).code == 2


def test_what_has_become_of_grants(rdc: Rdc) -> None:
    rdc.create("a")
    rdc.json(
        "repo",
        "gpu",
        "grant",
        "a",
        "--device",
        DEVICE,
        "--device",
        "nvidia.com/gpu=1",
        "--device",
        "nvidia.com/gpu=all",
    )
    rdc.json("repo", "gpu", "grant", "a", "--device", "nvidia.com/gpu=all", "--expires", "1s")
    rdc.write_spec(SPEC.replace("/dev/zero", "/dev/random").replace('{name: "1"', '{name: "one"'))
    rows = {str(row["device"]): row for row in rdc.json("repo", "gpu", "list").rows}
    assert rows[DEVICE]["status"] == "drifted"
    assert rows["nvidia.com/gpu=1"]["status"] == "unresolvable"
    assert rows[DEVICE]["reason"]
    table = rdc("repo", "gpu", "list").out
    assert "REASON" in table.splitlines()[0]
    assert str(rows[DEVICE]["reason"]) in table


def test_csv_has_the_same_heading_with_and_without_grants(rdc: Rdc) -> None:
    rdc.create("a")
    listed, revoked = (
        ("repo", "gpu", "list", "-o", "csv"),
        ("repo", "gpu", "revoke", "a", "--all", "-o", "csv"),
    )
    empty = [rdc(*words).out for words in (listed, revoked)]
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    assert [rdc(*words).out.splitlines(keepends=True)[0] for words in (listed, revoked)] == empty


def test_grants_of_a_repo_whose_file_is_gone_are_listed_and_revoked_by_guid(rdc: Rdc) -> None:
    made = rdc.create("a")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    Path(made["config"]).unlink()
    assert [row["repo"] for row in rdc.json("repo", "gpu", "list").rows] == [made["guid"]]
    assert rdc.json("repo", "gpu", "revoke", made["guid"], "--all").code == 0
    assert rdc.devices() == []
    assert rdc.json("repo", "gpu", "revoke", made["guid"], "--all").code == 5


def test_spec_dirs_of_gate_yaml_count(rdc: Rdc, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(SPEC.replace("nvidia.com/gpu", "acme.org/card"))
    rdc.create("a")
    config = rdc.root / "etc/rediacc/gate.yaml"
    config.write_text(f"schema_version: 1\ncdi_spec_dirs: [{tmp_path}]\n")
    assert rdc.json("repo", "gpu", "grant", "a", "--device", "acme.org/card=0").code == 0
    assert rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE).code == 3
    config.write_text("schema_version: 1\nno_such_key: 1\n")
    assert rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE).error["code"] == "malformed"


def test_a_damaged_store_is_told_and_left_as_it_is(rdc: Rdc) -> None:
    rdc.create("a")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE)
    store = rdc.root / "etc/rediacc/gpu/grants.json"
    store.write_text("{")
    for words in (("grant", "a", "--device", "nvidia.com/gpu=1"), ("revoke", "a", "--all"), ("list",)):
        done = rdc.json("repo", "gpu", *words)
        assert (done.code, done.error["code"]) == (1, "damaged")
        assert done.error["hint"]
    assert store.read_text() == "{"


def test_a_table_of_grants(rdc: Rdc) -> None:
    rdc.create("a")
    rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE, "--note", "red")
    out = rdc("repo", "gpu", "list").out
    assert out.splitlines()[0].split()[:3] == ["REPO", "DEVICE", "SHARING"]
    assert "\x1b" not in out
