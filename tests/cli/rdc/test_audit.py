import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from base.layout import Layout
from tests.cli.rdc.runner import Rdc

DEVICE = "nvidia.com/gpu=0"


@pytest.fixture
def log(rdc: Rdc) -> Path:
    """A log of five lines about two repos."""
    rdc.write_spec()
    rdc.create("a")
    rdc.create("b")
    assert rdc("repo", "gpu", "grant", "a", "--device", DEVICE).code == 0
    assert rdc("repo", "gpu", "revoke", "a", "--all").code == 0
    assert rdc("repo", "delete", "b", "--yes").code == 0
    return Layout(rdc.root).audit_log


def test_tail_shows_who_did_what_to_which_repo(rdc: Rdc, log: Path) -> None:
    rows = rdc.json("audit", "tail").rows
    assert [(row["event"], row["repo"], row["subject"]) for row in rows] == [
        ("repo.created", "a", "a"),
        ("repo.created", "b", "b"),
        ("grant.granted", "a", DEVICE),
        ("grant.revoked", "a", DEVICE),
        ("repo.deleted", "b", "b"),
    ]
    assert {row["uid"] for row in rows} == {os.getuid()}
    assert [row["seq"] for row in rdc.json("audit", "tail", "-n", "2").rows] == [4, 5]
    assert [row["seq"] for row in rdc.json("audit", "tail", "-n", "2", "--repo", "a").rows] == [3, 4]
    guid = str(rows[1]["guid"])
    assert [row["seq"] for row in rdc.json("audit", "tail", "--repo", guid).rows] == [2, 5]
    assert rdc.json("audit", "tail", "-n", "0").rows == []
    table = rdc("audit", "tail").out
    assert table.splitlines()[0].split()[:3] == ["SEQ", "AT", "EVENT"]
    assert len(table.splitlines()) == 6


def test_without_a_log_there_is_nothing_and_that_is_whole(rdc: Rdc) -> None:
    done = rdc.json("audit", "tail")
    assert (done.code, done.rows) == (0, [])
    assert done.err
    found = rdc.json("audit", "verify")
    assert (found.code, found.record["whole"], found.record["lines"]) == (0, True, 0)


def test_verify_finds_the_place(rdc: Rdc, log: Path) -> None:
    done = rdc.json("audit", "verify")
    assert (done.code, done.record["whole"], done.record["lines"]) == (0, True, 5)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines).replace(b"grant.granted", b"grant.refused"))
    done = rdc.json("audit", "verify")
    assert (done.code, done.error["code"]) == (1, "audit-broken")
    assert done.record["problems"][0]["line"] == 4  # type: ignore[index] - the line after holds the old hash
    assert "audit.jsonl, line 4" in done.error["message"]
    log.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    assert rdc("audit", "verify").code == 1


def test_a_cut_end_is_found_with_an_anchor(rdc: Rdc, log: Path) -> None:
    tip = str(rdc.json("audit", "verify").record["tip"])
    assert rdc("audit", "verify", "--expect", tip).code == 0
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:3]))
    assert rdc("audit", "verify").code == 0
    assert rdc("audit", "verify", "--expect", tip).code == 1
    assert rdc.json("audit", "verify", "--expect", "5").error["code"] == "malformed"


def test_an_unfinished_line_is_a_note(rdc: Rdc, log: Path) -> None:
    with log.open("ab") as stream:
        stream.write(b'{"seq":6')
    done = rdc("audit", "verify")
    assert done.code == 0
    assert "note" in done.err
    rdc.create("c")
    done = rdc.json("audit", "verify")
    assert (done.code, done.record["recovered"], done.record["lines"]) == (0, 1, 7)


def test_what_was_taken_away_unrecorded_is_told(rdc: Rdc, log: Path) -> None:
    assert rdc("repo", "gpu", "grant", "a", "--device", DEVICE).code == 0
    log.unlink()
    log.mkdir()
    done = rdc.json("repo", "gpu", "revoke", "a", "--all")
    assert (done.code, done.error["code"]) == (1, "unrecorded")
    assert rdc.devices() == []
    assert rdc.json("repo", "gpu", "grant", "a", "--device", DEVICE).error["code"] == "permission"
    assert rdc.devices() == []


@pytest.mark.parametrize("form", ["json", "table"])
def test_following_neither_repeats_nor_leaves_out(rdc: Rdc, log: Path, form: str) -> None:
    program = Path(sys.executable).parent / "rdc"
    command = [program, "--root", str(rdc.root), "audit", "tail", "-f", "-n", "1", "--repo", "a", "-o", form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as following:
        assert following.stdout is not None
        head = [following.stdout.readline() for _ in range(1 if form == "json" else 2)]
        rdc.create("c")
        for _ in range(2):
            assert rdc("repo", "gpu", "grant", "a", "--device", DEVICE).code == 0
        seen = [head[-1], following.stdout.readline(), following.stdout.readline()]
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=30)
    seqs = [json.loads(line)["seq"] if form == "json" else int(line.split()[0]) for line in seen]
    assert seqs == [4, 7, 8]
