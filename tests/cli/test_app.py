import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from base.errors import (
    AccessError,
    DamagedError,
    MalformedError,
    NotFoundError,
    RdcError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from cli.app import (
    Lazy,
    LazyGroup,
    layout,
    output_format,
    output_option,
    root_option,
    run,
    version_option,
    wants_json,
)


def program(error: BaseException | None = None, *, result: object = None) -> click.Command:
    @click.command()
    @click.option("--number", type=int)
    @output_option
    @root_option
    def leaf(number: int | None) -> None:
        """Do it."""
        if error is not None:
            raise error
        click.echo(f"{layout().root} {output_format()} {number}")

    group = click.Group("prog")
    group.add_command(leaf)
    return version_option(root_option(group))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RdcError("m"), 1),
        (MalformedError("m"), 1),
        (DamagedError("m"), 1),
        (UsageError("m"), 2),
        (click.UsageError("m"), 2),
        (RefusedError("m"), 3),
        (AccessError("m"), 4),
        (PermissionError(13, "denied"), 4),
        (OSError(errno.ENOSPC, "full"), 1),
        (NotFoundError("m"), 5),
        (UnreachableError("m"), 6),
        (ValueError("m"), 1),
        (RecursionError(), 1),
        (click.Abort(), 130),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_have_their_exit_codes_and_no_traceback(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(program(error), "prog", ["leaf"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err
    assert "Traceback" not in captured.err


def test_the_hint_is_printed_below_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    run(program(RefusedError("what", hint="do this")), "prog", ["leaf"])
    assert capsys.readouterr().err == "prog: what\n  do this\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError("what", hint="do"), "refused"),
        (ValueError("x"), "internal"),
        (OSError(errno.ENOSPC, "No space left on device", "/some/file"), "no-room"),
        (click.UsageError("u"), "usage"),
    ],
)
def test_json_errors_are_one_object(error: Exception, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(program(error), "prog", ["leaf", "-o", "json"])
    captured = capsys.readouterr()
    found = json.loads(captured.err)
    assert set(found) == {"code", "message", "hint"}
    assert found["code"] == code
    assert captured.out == ""


@pytest.mark.parametrize(
    "words", [["leaf", "--number", "x", "-o", "json"], ["leaf", "-o", "json", "--bogus"]]
)
def test_json_errors_also_where_the_words_cannot_be_parsed(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(program(), "prog", words) == 2
    assert json.loads(capsys.readouterr().err)["code"] == "usage"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-o", "json"], True), (["-ojson"], True), (["--output=json"], True), (["--output", "json"], True),
        (["-o", "yaml"], False), (["json"], False), (["-o"], False), ([], False),
    ],
)  # fmt: skip
def test_who_wants_json(words: list[str], expected: bool) -> None:
    assert wants_json(words) is expected


def test_details_of_the_unforeseen_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDC_DEBUG", "1")
    assert run(program(ValueError("x")), "prog", ["leaf"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "variable", "root"),
    [
        (["--root", "/a", "leaf"], None, "/a"),
        (["leaf", "--root", "/b"], None, "/b"),
        (["--root", "/a", "leaf", "--root", "/b"], None, "/b"),
        (["leaf"], "/c", "/c"),
        (["leaf", "--root", "/b"], "/c", "/b"),
        (["leaf"], None, "/"),
    ],
)
def test_the_root_may_stand_anywhere(
    words: list[str],
    variable: str | None,
    root: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if variable is None:
        monkeypatch.delenv("RDC_ROOT", raising=False)
    else:
        monkeypatch.setenv("RDC_ROOT", variable)
    assert run(program(), "prog", words) == 0
    assert capsys.readouterr().out == f"{root} table None\n"


def test_the_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(program(), "prog", ["leaf", "-o", "yaml", "--root", "/"]) == 0
    assert capsys.readouterr().out == "/ yaml None\n"
    assert run(program(), "prog", ["leaf", "-o", "xml"]) == 2


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(program(), "prog", ["--version"]) == 0
    assert capsys.readouterr().out.split()[0] == "prog"
    assert run(program(), "prog", ["leaf", "--help"]) == 0
    assert "Do it." in capsys.readouterr().out
    assert run(program(), "prog", []) == 2
    assert "leaf" in capsys.readouterr().err


def test_lazy_commands_are_imported_when_they_are_called(capsys: pytest.CaptureFixture[str]) -> None:
    group = LazyGroup(
        name="prog",
        help="Help.",
        lazy={
            "good": Lazy("cli.completion:completion", "It works."),
            "missing": Lazy("cli.no_such_module:x", "Never imported by --help."),
            "other": Lazy("cli.render:Format", "Not a command."),
        },
    )
    assert run(group, "prog", ["--help"]) == 0
    assert "Never imported" in capsys.readouterr().out
    assert run(group, "prog", ["good", "bash"]) == 0
    assert run(group, "prog", ["other"]) == 1
    assert run(group, "prog", ["unknown"]) == 2


SCRIPT = """
import sys, time, click
from cli.app import run
@click.command()
def leaf():
    for number in range(100000):
        click.echo(f"line {number}")
    print("ready", file=sys.stderr, flush=True)
    time.sleep(1000)
sys.exit(run(leaf, "prog"))
"""


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(30) == 1


@pytest.mark.parametrize("closed", [1, 2])
def test_closed_streams_are_no_error(closed: int) -> None:
    program = Path(sys.executable).parent / "rdc"
    command = f'exec "$0" --root /no/such/root repo list {closed}>&-'
    done = subprocess.run(["sh", "-c", command, program], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"unexpected" not in done.stderr


def test_a_full_disk_under_stdout_is_told_in_plain_words() -> None:
    program = Path(sys.executable).parent / "rdc"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" --help >/dev/full', program], capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"cannot write" in done.stderr
    assert b"unexpected" not in done.stderr


def test_ctrl_c_ends_it_with_a_word(tmp_path: Path) -> None:
    with (
        (tmp_path / "out").open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT], stdout=out, stderr=subprocess.PIPE, env=dict(os.environ)
        ) as child,
    ):
        assert child.stderr is not None
        assert child.stderr.readline() == b"ready\n"
        child.send_signal(signal.SIGINT)
        assert b"Traceback" not in child.stderr.read()
        assert child.wait(30) == 130
