import json
import os

import pytest

from cli.app import run
from cli.renet.main import renet

GOOD = """cdiVersion: 0.5.0
kind: vv.com/dd
devices:
- {name: b, containerEdits: {env: [B=1]}}
- {name: 0, containerEdits: {env: [A=1]}}
"""
NEWER = GOOD.replace("0.5.0", "0.7.0")


@pytest.fixture(autouse=True)
def no_engine(tmp_path, monkeypatch):
    """Nothing of the machine decides: the root is empty, and the engine is the one that a test makes."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("RDC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("RDC_ENGINE_DIR", str(tools))
    _engine(tools, "28.5.2")
    return tools


def _engine(tools, version):
    (tools / "dockerd").write_text(f"#!/bin/sh\necho Docker version {version}, build x\n")
    (tools / "dockerd").chmod(0o755)


def renet_cdi(capsys, *words):
    code = run(renet, "renet", ["cdi", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def verdicts(capsys, *words):
    code, out, _ = renet_cdi(capsys, "validate", "-o", "json", *words)
    return code, json.loads(out)


def test_validate(tmp_path, capsys):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.json"
    good.write_text(GOOD)
    bad.write_text(GOOD.replace("A=1", "A"))
    code, found = verdicts(capsys, good, bad)
    assert code == 3
    assert found[0] == {
        "file": str(good),
        "valid": True,
        "devices": ["vv.com/dd=0", "vv.com/dd=b"],
        "errors": [],
    }
    assert (found[1]["file"], found[1]["valid"], found[1]["devices"]) == (str(bad), False, [])
    (error,) = found[1]["errors"]
    assert error.keys() == {"line", "column", "pointer", "message", "code"}
    assert (error["line"], error["pointer"], error["code"]) == (5, "/devices/1/containerEdits/env/0", "env")


def test_validate_table(tmp_path, capsys):
    good = tmp_path / "good.yaml"
    good.write_text(GOOD)
    code, out, _ = renet_cdi(capsys, "validate", good)
    assert code == 0
    assert str(good) in out
    assert "vv.com/dd=0, vv.com/dd=b" in out


@pytest.mark.parametrize(
    ("name", "make", "codes"),
    [
        ("a.yml", lambda path: path.write_text(GOOD), ["extension"]),
        ("a.YAML", lambda path: path.write_text(GOOD), ["extension"]),
        ("a.yml", lambda path: path.write_text("{"), ["extension", "syntax"]),
        ("a.yaml", lambda path: None, ["unreadable"]),
        ("a.yaml", lambda path: path.mkdir(), ["unreadable"]),
        ("a.yaml", os.mkfifo, ["unreadable"]),
        ("a.yaml", lambda path: path.write_text(""), ["empty"]),
        ("a.yaml", lambda path: path.write_bytes(b"\xff\xfe"), ["empty"]),
        ("a.yaml", lambda path: path.write_text(GOOD.replace("vv.com", "v")), ["crash-one-letter"]),
        ("a.yaml", lambda path: path.write_text("kind: [" * 5000), ["too-deep"]),
    ],
)
def test_validate_refuses(tmp_path, capsys, name, make, codes):
    path = tmp_path / name
    make(path)
    code, (found,) = verdicts(capsys, path)
    assert code == 3
    assert (found["valid"], found["devices"]) == (False, [])
    assert [error["code"] for error in found["errors"]] == codes


@pytest.mark.parametrize(
    ("engine", "words", "valid"),
    [
        ("28.5.2", [], True),
        ("25.0.15", [], False),
        ("25.0.15", ["--library", "0.7.2"], True),
        ("28.5.2", ["--library", "0.6.2"], False),
        (None, [], True),
    ],
)
def test_whose_rules_count(tmp_path, capsys, no_engine, engine, words, valid):
    path = tmp_path / "a.yaml"
    path.write_text(NEWER)
    _engine(no_engine, engine or "")
    code, (found,) = verdicts(capsys, path, *words)
    assert found["valid"] is valid
    assert code == (0 if valid else 3)


def test_validate_usage(capsys):
    assert renet_cdi(capsys, "validate")[0] == 2
    assert renet_cdi(capsys, "validate", "--library", "0.5.0", "x")[0] == 2


def test_list_reads_the_root_by_default(tmp_path, capsys):
    code, out, _ = renet_cdi(capsys, "list", "-o", "json")
    assert (code, json.loads(out)) == (0, {"devices": [], "errors": {}})
    specs = tmp_path / "root/etc/cdi"
    specs.mkdir(parents=True)
    (specs / "a.yaml").write_text(GOOD)
    code, out, _ = renet_cdi(capsys, "list", "-o", "json")
    assert (code, json.loads(out)) == (0, {"devices": ["vv.com/dd=0", "vv.com/dd=b"], "errors": {}})
    code, out, _ = renet_cdi(capsys, "list", "--root", tmp_path, "-o", "json")
    assert (code, json.loads(out)) == (0, {"devices": [], "errors": {}})


def test_list_directories_in_order(tmp_path, capsys):
    for name, text in (("etc", GOOD), ("run", GOOD.replace("B=1", "B=2"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(text)
    (tmp_path / "run" / "bad.json").write_text("{")
    words = [word for name in ("etc", "missing", "run") for word in ("--spec-dir", tmp_path / name)]
    code, out, err = renet_cdi(capsys, "list", *words, "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert found["devices"] == ["vv.com/dd=0", "vv.com/dd=b"]
    assert list(found["errors"]) == [str(tmp_path / "run/bad.json")]
    assert str(tmp_path / "missing") in err
    code, out, err = renet_cdi(capsys, "list", *words)
    assert f"vv.com/dd=b  {tmp_path}/run/a.yaml" in out
    assert str(tmp_path / "run/bad.json") in err


@pytest.mark.parametrize("form", ["yaml", "csv"])
def test_other_formats(tmp_path, capsys, form):
    (tmp_path / "a.yaml").write_text(GOOD)
    code, out, _ = renet_cdi(capsys, "list", "--spec-dir", tmp_path, "-o", form)
    assert code == 0
    assert "vv.com/dd=0" in out
    code, out, _ = renet_cdi(capsys, "validate", tmp_path / "a.yaml", "-o", form)
    assert code == 0
    assert "vv.com/dd=0" in out


def test_names_that_are_no_text(tmp_path, capsys):
    path = os.fsencode(tmp_path) + b"/\xff.yaml"
    with open(path, "wb") as stream:  # noqa: PTH123 - a name that pathlib would have to guess
        stream.write(b"{")
    code, out, _ = renet_cdi(capsys, "validate", os.fsdecode(path), "-o", "json")
    assert code == 3
    assert json.loads(out)[0]["file"].endswith("\ufffd.yaml")
    code, out, _ = renet_cdi(capsys, "list", "--spec-dir", tmp_path, "-o", "json")
    assert code == 0
    assert len(json.loads(out)["errors"]) == 1
