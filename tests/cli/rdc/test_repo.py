import contextlib
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.cli.rdc.runner import Rdc
from tests.fake_daemon import fake_daemon


@pytest.mark.parametrize(
    ("form", "out"),
    [
        ("json", "[]\n"),
        ("yaml", "[]\n"),
        ("table", ""),
        ("csv", "name,guid,socket,upstream,managed,cdi_spec_dir,trust\n"),
    ],
)
def test_no_repos(rdc: Rdc, form: str, out: str) -> None:
    done = rdc("repo", "list", "-o", form)
    assert (done.code, done.out) == (0, out)
    assert "rdc repo create" in done.err


def test_a_repo_is_made_shown_and_listed(rdc: Rdc) -> None:
    made = rdc.create("gpu-a")
    assert made["name"] == "gpu-a"
    assert uuid.UUID(made["guid"]).version == 4
    assert made["upstream"] == f"unix://{rdc.root}/gpu-a.sock"
    assert made["socket"] == f"{rdc.root}/run/rediacc/{made['guid']}/docker.sock"
    assert made["cdi_spec_dir"] == f"{rdc.root}/run/rediacc/{made['guid']}/cdi"
    assert Path(made["cdi_spec_dir"]).is_dir()
    assert rdc.json("repo", "show", "gpu-a").record == made
    assert rdc.json("repo", "show", "gpu-a@local").record == made
    assert rdc.json("repo", "show", made["guid"]).record == made
    assert [row["name"] for row in rdc.json("repo", "list").rows] == ["gpu-a"]
    assert "gpu-a" in rdc("repo", "list").out


def test_a_repo_without_upstream_gets_a_daemon_of_its_own(rdc: Rdc) -> None:
    done = rdc.json("repo", "create", "own")
    assert done.code == 0
    assert done.record["managed"] is True
    assert (
        done.record["upstream"] == f"unix://{rdc.root}/run/rediacc/{done.record['guid']}/private/dockerd.sock"
    )
    assert "renet" in done.err
    assert "up" in done.err


def test_holders_are_those_of_an_upstream(rdc: Rdc) -> None:
    assert rdc.json("repo", "create", "own", "--stop-holders").code == 2
    assert rdc.json("repo", "list").rows == []


def test_csv_has_the_same_heading_with_and_without_repos(rdc: Rdc) -> None:
    empty = rdc("repo", "list", "-o", "csv").out
    rdc.create("a")
    assert rdc("repo", "list", "-o", "csv").out.startswith(empty)


def test_options_are_recorded(rdc: Rdc) -> None:
    (rdc.root / "data").mkdir()
    (rdc.root / "link").symlink_to(rdc.root / "data")
    made = rdc.create("a", "--bind-root", str(rdc.root / "link"), "--group", "root", "--trust", "stranger")
    assert made["bind_roots"] == [str(rdc.root / "data")]
    assert made["socket_group"] == "root"
    assert made["trust"] == "stranger"


def test_a_name_is_taken_once(rdc: Rdc) -> None:
    first = rdc.create("gpu-a")
    done = rdc.json("repo", "create", "gpu-a")
    assert (done.code, done.out, done.error["code"]) == (3, "", "exists")
    assert rdc.json("repo", "show", "gpu-a").record["guid"] == first["guid"]


@pytest.mark.parametrize("name", ["", "a@b", "a:b", "a/b", "..", ".a", "-a", "a b", "ä", "a\nb", "x" * 33])
def test_names_that_no_ref_could_mean(rdc: Rdc, name: str) -> None:
    done = rdc.json("repo", "create", "--", name)
    assert done.code == 2
    assert rdc.json("repo", "list").rows == []


@pytest.mark.parametrize("name", ["a", "A", "0", "gpu-a", "a.b_c-d", "x" * 32])
def test_names_that_are_fine(rdc: Rdc, name: str) -> None:
    assert rdc.create(name)["name"] == name


@pytest.mark.parametrize(
    "upstream",
    ["tcp://1.2.3.4:2375", "/var/run/docker.sock", "unix://docker.sock", "unix:///" + "x" * 120, ""],
)
def test_upstreams_that_are_no_unix_socket(rdc: Rdc, upstream: str) -> None:
    assert rdc.json("repo", "create", "a", "--upstream", upstream).code == 2
    assert rdc.json("repo", "list").rows == []


def test_an_upstream_that_exists_is_a_socket(rdc: Rdc) -> None:
    for path in (rdc.root, rdc.root / "file"):
        (rdc.root / "file").touch()
        assert rdc.json("repo", "create", "a", "--upstream", f"unix://{path}").code == 2
    assert rdc.json("repo", "list").rows == []


def test_two_repos_never_share_a_daemon(rdc: Rdc) -> None:
    rdc.create("a", "--upstream", f"unix://{rdc.root}/d.sock")
    (rdc.root / "link.sock").symlink_to(rdc.root / "d.sock")
    for path in ("d.sock", "link.sock", "./d.sock"):
        done = rdc.json("repo", "create", "b", "--upstream", f"unix://{rdc.root}/{path}")
        assert (done.code, done.error["code"]) == (3, "refused")


def test_a_managed_daemon_is_nobody_elses(rdc: Rdc) -> None:
    own = rdc.json("repo", "create", "own").record
    assert rdc.json("repo", "create", "b", "--upstream", str(own["upstream"])).code == 3


def test_a_gate_is_no_upstream(rdc: Rdc) -> None:
    first = rdc.create("a")
    assert rdc.json("repo", "create", "b", "--upstream", f"unix://{first['socket']}").code == 2


@pytest.mark.parametrize(("folder", "code"), [("relative", 2), ("/dev", 2), ("/", 2), ("/no/such/folder", 5)])
def test_bind_roots_that_cannot_be(rdc: Rdc, folder: str, code: int) -> None:
    assert rdc.json("repo", "create", "a", "--bind-root", folder).code == code
    assert rdc.json("repo", "list").rows == []


def test_a_group_that_does_not_exist(rdc: Rdc) -> None:
    assert rdc.json("repo", "create", "a", "--group", "no-such-group").code == 5


def test_a_root_that_is_too_deep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rdc = Rdc(tmp_path / ("x" * 80), capsys)
    done = rdc.json("repo", "create", "a", "--upstream", "unix:///tmp/x.sock")
    assert done.code == 3
    assert "--root" in done.error["hint"]


@pytest.mark.parametrize(
    ("ref", "code", "candidate"),
    [
        ("gpu-x", 5, "gpu-a@local"), ("gpu-a@elsewhere", 5, "gpu-a@local"), ("zzz", 5, "rdc repo list"),
        ("@", 2, ""), ("gpu-a@", 2, ""), ("../x", 5, ""),
        ("6af613b6-569c-4c22-9c37-2ed93f31d3af", 5, "rdc repo list"),
    ],
)  # fmt: skip
def test_refs_that_mean_nothing(rdc: Rdc, ref: str, code: int, candidate: str) -> None:
    rdc.create("gpu-a")
    for words in (("repo", "show", ref), ("repo", "delete", ref, "--yes"), ("repo", "gpu", "list", ref)):
        done = rdc.json(*words)
        assert done.code == code
        assert candidate in done.error["hint"]


def test_a_file_that_cannot_be_read_is_told_and_others_are_not_disturbed(rdc: Rdc) -> None:
    rdc.create("good")
    bad = rdc.create("bad")
    Path(bad["config"]).write_text("name: [")
    listed = rdc.json("repo", "list")
    assert [row["name"] for row in listed.rows] == ["good"]
    assert bad["config"] in listed.err
    assert rdc.json("repo", "show", "bad").error["code"] == "malformed"
    assert rdc.json("repo", "show", "good").code == 0


def test_deleting_needs_a_yes_where_nobody_can_be_asked(rdc: Rdc, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rdc.create("a")
    with Path("/dev/null").open() as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        done = rdc.json("repo", "delete", "a")
    assert (done.code, done.error["code"]) == (2, "usage")
    assert Path(made["config"]).exists()


def test_deleting_frees_grants_and_leaves_nothing(rdc: Rdc) -> None:
    rdc.write_spec()
    made, other = rdc.create("a"), rdc.create("b")
    assert rdc.json("repo", "gpu", "grant", "a", "--device", "nvidia.com/gpu=0", "--exclusive").code == 0
    assert rdc.json("repo", "gpu", "grant", "b", "--device", "nvidia.com/gpu=0").code == 3
    done = rdc.json("repo", "delete", "a", "--yes")
    assert done.code == 0
    assert "nvidia.com/gpu=0" in done.err
    assert not Path(made["cdi_spec_dir"]).parent.exists()
    assert [row["guid"] for row in rdc.json("repo", "list").rows] == [other["guid"]]
    assert rdc.json("repo", "gpu", "grant", "b", "--device", "nvidia.com/gpu=0").code == 0


def _interrupt(asking: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C, which a terminal would send; ours controls no session.

    More than once, as a person would: one that comes just before the read begins does not end the read.
    """
    while asking.poll() is None:
        asking.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            asking.wait(1)


@pytest.mark.parametrize(
    ("answer", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1), (b"\x04", 130), (b"\x03", 130)]
)
def test_whoever_can_be_asked_is_asked(rdc: Rdc, answer: bytes, code: int) -> None:
    made = rdc.create("a")
    ours, theirs = os.openpty()
    command = [Path(sys.executable).parent / "rdc", "--root", str(rdc.root), "repo", "delete", "a"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as asking:
        os.close(theirs)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(ours, 4096)
        if answer == b"\x03":
            _interrupt(asking)
        else:
            os.write(ours, answer)
        assert asking.wait(30) == code
    os.close(ours)
    assert Path(made["config"]).exists() is (code != 0)


def test_what_is_lost_is_told_first(rdc: Rdc) -> None:
    done = rdc.json("repo", "create", "own")
    root = Path(str(done.record["socket"])).parent
    (root / "private").mkdir(parents=True)
    (rdc.root / "var/lib/rediacc/repos" / str(done.record["guid"])).mkdir(parents=True)
    info = {"ServerVersion": "28.5.2", "Containers": 41, "Images": 42}
    with fake_daemon(root / "private/dockerd.sock", {"GET /info": (200, info)}):
        told = rdc("repo", "delete", "own", "--yes").err
    assert "41" in told
    assert "42" in told


def test_an_interrupted_delete_is_finished_by_guid(rdc: Rdc) -> None:
    rdc.write_spec()
    made = rdc.create("a")
    rdc.json("repo", "gpu", "grant", "a", "--device", "nvidia.com/gpu=0")
    Path(made["config"]).unlink()
    assert rdc.json("repo", "delete", "a", "--yes").code == 5
    assert rdc.json("repo", "delete", made["guid"], "--yes").code == 0
    assert rdc.devices() == []
    assert not Path(made["cdi_spec_dir"]).exists()
    assert rdc.json("repo", "delete", made["guid"], "--yes").code == 5


def test_what_answers_is_shown(rdc: Rdc) -> None:
    made = rdc.create("a", "--upstream", f"unix://{rdc.root}/d.sock")
    assert (made["gate"], made["daemon"]) == ("down", "down")
    with fake_daemon(rdc.root / "d.sock", {"GET /_ping": (200, b"OK")}):
        shown = rdc.json("repo", "show", "a").record
        assert (shown["gate"], shown["daemon"]) == ("down", "answers")


INFO = {"ServerVersion": "28.5.2", "CDISpecDirs": [], "DefaultRuntime": "runc", "Runtimes": {"runc": {}}}


def test_a_daemon_that_gives_hardware_past_any_gate_is_refused(rdc: Rdc) -> None:
    answers: dict[str, tuple[int, object]] = {"GET /info": (200, {**INFO, "DefaultRuntime": "nvidia"})}
    with fake_daemon(rdc.root / "d.sock", answers):
        done = rdc.json("repo", "create", "a", "--upstream", f"unix://{rdc.root}/d.sock")
        assert (done.code, done.error["code"]) == (3, "refused")
        assert "default-runtime" in done.error["hint"]
        assert rdc.json("repo", "list").rows == []
        answers["GET /info"] = (200, INFO)
        rdc.create("a", "--upstream", f"unix://{rdc.root}/d.sock")


def test_what_a_daemon_lacks_is_told_when_it_gets_its_gate(rdc: Rdc) -> None:
    with fake_daemon(rdc.root / "d.sock", {"GET /info": (200, {**INFO, "ExperimentalBuild": True})}):
        done = rdc("repo", "create", "a", "--upstream", f"unix://{rdc.root}/d.sock")
    assert done.code == 0
    assert "experimental" in done.err
    assert "cdi-spec-dirs" in done.err


def test_of_many_that_want_a_name_at_once_one_gets_it(rdc: Rdc) -> None:
    program = Path(sys.executable).parent / "rdc"
    command = [program, "--root", str(rdc.root), "repo", "create", "same", "--upstream"]
    started = [
        subprocess.Popen(
            [*command, f"unix:///tmp/u{number}.sock"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for number in range(6)
    ]
    codes = sorted(process.wait(50) for process in started)
    assert codes == [0, 3, 3, 3, 3, 3]
    assert len(rdc.json("repo", "list").rows) == 1


def test_without_permission_it_ends_with_4(rdc: Rdc) -> None:
    rdc.create("a")
    (rdc.root / "etc/rediacc/repos/.lock").unlink()
    (rdc.root / "etc/rediacc/repos/.lock").symlink_to("elsewhere")
    done = rdc.json("repo", "create", "b", "--upstream", "unix:///tmp/b.sock")
    assert (done.code, done.error["code"]) == (4, "permission")


def test_a_repo_is_renamed(rdc: Rdc) -> None:
    made = rdc.create("gpu-a")
    done = rdc.json("repo", "rename", "gpu-a", "gpu-b")
    assert (done.code, done.record["name"], done.record["guid"]) == (0, "gpu-b", made["guid"])
    assert done.record["socket"] == made["socket"]
    assert rdc.json("repo", "show", "gpu-a").code == 5
    rdc.create("gpu-c")
    assert rdc.json("repo", "rename", "gpu-b", "gpu-c").error["code"] == "exists"


def test_a_repo_is_forked(rdc: Rdc) -> None:
    (rdc.root / "data").mkdir()
    made = rdc.create("gpu-a", "--bind-root", str(rdc.root / "data"))
    assert rdc.json("repo", "fork", "gpu-a", "gpu-b").code == 3
    done = rdc.json("repo", "fork", "gpu-a", "gpu-b", "--upstream", "managed")
    assert (done.code, done.record["managed"]) == (0, True)
    assert done.record["bind_roots"] == made["bind_roots"]
    assert done.record["guid"] != made["guid"]
    assert str(rdc.root / "data") in done.err
    assert rdc.json("repo", "fork", "gpu-b", "gpu-c", "--stop-holders").code == 2


def test_a_repo_whose_file_is_broken_can_be_deleted(rdc: Rdc) -> None:
    made = rdc.create("gpu-a")
    path = rdc.root / "etc/rediacc/repos/gpu-a.yaml"
    path.write_text(path.read_text() + "oops: 1\n")
    refused = rdc.json("repo", "delete", "gpu-a")
    assert (refused.code, path.exists()) == (2, True)
    assert "oops" in refused.err
    done = rdc.json("repo", "delete", "gpu-a", "--yes")
    assert done.record == {"name": "gpu-a", "guid": made["guid"], "deleted": True}
    assert not path.exists()


def test_a_file_that_is_a_copy_or_junk_goes_alone(rdc: Rdc) -> None:
    rdc.create("gpu-a")
    folder = rdc.root / "etc/rediacc/repos"
    (folder / "copy.yaml").write_text(
        (folder / "gpu-a.yaml").read_text().replace("name: gpu-a", "name: copy")
    )
    (folder / "junk.yaml").write_text("junk")
    for name in ("copy", "junk"):
        done = rdc.json("repo", "delete", name, "--yes")
        assert (done.code, done.record["name"]) == (0, name)
        assert "only its file" in done.err
    assert [row["name"] for row in rdc.json("repo", "list").rows] == ["gpu-a"]


def test_what_would_be_lost_is_told(rdc: Rdc) -> None:
    made = rdc.json("repo", "create", "own").record
    (rdc.root / "var/lib/rediacc/repos" / str(made["guid"])).mkdir(parents=True)
    assert "which does not answer" in rdc.json("repo", "delete", "own").err
    answers = {
        "GET /info": (200, {"Containers": 1, "Images": 1}),
        "GET /system/df": (
            200,
            {
                "LayersSize": 5_000_000,
                "Containers": [{"SizeRw": 100_000}],
                "Images": [{}, {}],
                "Volumes": [{"UsageData": {"Size": 2_000_000}}, {"UsageData": {"Size": -1}}],
                "BuildCache": [{"Size": 400_000}, {"Size": 9_000_000, "Shared": True}],
            },
        ),
    }
    socket = Path(str(made["upstream"]).removeprefix("unix://"))
    socket.parent.mkdir(parents=True)
    with fake_daemon(socket, answers):
        said = rdc.json("repo", "delete", "own").err
    assert "(containers: 1, images: 2, volumes: 2, 7.5 MB in all)" in said
