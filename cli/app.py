"""What `rdc` and `renet` share: lazily loaded commands, common options, and the one place that ends a run.

No exception leaves `run`: an `RdcError` is printed with its hint and gives its exit code, usage errors give
2, anything unforeseen gives 1 and says how to see more. With `-o json` errors are one JSON object
`{"code", "message", "hint"}` on stderr. Source: design section 9.
"""

import errno
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import click

from base.errors import RdcError
from base.layout import ROOT_VARIABLE, Layout
from cli.render import Format, say

C = TypeVar("C", bound="Callable[..., object] | click.Command")

DEBUG_VARIABLE = "RDC_DEBUG"
_ROOT_KEY = "cli.root"
_FORMAT_KEY = "cli.format"
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_EXIT_USAGE = 2
_EXIT_SIGNAL = 128
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""A full or read-only disk, below a file of ours or stdout: no error of the program."""


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command lives, and the line that describes it in its parent's help."""

    target: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that a small command starts quickly."""

    def __init__(self, *, name: str, help: str, lazy: Mapping[str, Lazy]) -> None:  # noqa: A002
        super().__init__(name=name, help=help, context_settings=dict(_CONTEXT), no_args_is_help=True)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name, in the order they were declared."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None when there is no such command."""
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = lazy.target.partition(":")
        command: object = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            message = f"{lazy.target} is not a command"
            raise TypeError(message)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        rows = [(name, lazy.summary) for name, lazy in self._lazy.items()]
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=formatter.width)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def root_option(command: C) -> C:
    """Add `--root`; it may stand before or after the command's name, the last one wins."""

    def keep(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.find_root().meta[_ROOT_KEY] = value

    return click.option(
        "--root",
        metavar="DIR",
        expose_value=False,
        callback=keep,
        help=f"Read and write everything below DIR instead of '/'. [env: {ROOT_VARIABLE}]",
    )(command)


def output_option(command: C) -> C:
    """Add `-o/--output`."""

    def keep(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.find_root().meta[_FORMAT_KEY] = Format(value)

    return click.option(
        "-o",
        "--output",
        type=click.Choice([str(each) for each in Format]),
        expose_value=False,
        callback=keep,
        help="How to print data on stdout.  [default: table]",
    )(command)


def version_option(command: C) -> C:
    """Add `--version`, which prints the program's name and the distribution's version."""

    def show(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            from importlib.metadata import version  # noqa: PLC0415 - costs 30 ms, needed here alone

            click.echo(f"{ctx.find_root().info_name} {version('cdi-gate')}")
            ctx.exit()

    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show the version and exit.",
    )(command)


def layout() -> Layout:
    """The files below the root that the command line or the environment names."""
    return Layout.from_environment(root_of(click.get_current_context()))


def root_of(ctx: click.Context) -> str | None:
    """The root that the command line names so far."""
    root: object = ctx.find_root().meta.get(_ROOT_KEY)
    return root if isinstance(root, str) else None


def output_format() -> Format:
    """The format asked for with `-o`."""
    form: object = click.get_current_context().find_root().meta.get(_FORMAT_KEY)
    return form if isinstance(form, Format) else Format.TABLE


def run(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line and return its exit code; prints errors, never a traceback.

    Args:
        command: the root command.
        name: what the program is called in its messages.
        arguments: the words after the program's name; `sys.argv` when None.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result: object = command.main(words, prog_name=name, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as exc:
        say(exc.format_message())
        return _EXIT_USAGE
    except SystemExit as exc:
        return (
            exc.code if isinstance(exc.code, int) else 1
        )  # click ends so when the reader of stdout goes away
    except (click.Abort, KeyboardInterrupt):
        say("aborted")
        return _EXIT_SIGNAL + signal.SIGINT
    except Exception as exc:  # noqa: BLE001 - the last line of defence: people get words, not a traceback
        return _report(exc, name, as_json=wants_json(words))


def wants_json(words: Sequence[str]) -> bool:
    """Whether `-o json` stands among the words, also when the rest of them cannot be parsed."""
    for index, word in enumerate(words):
        if word in ("-ojson", "-o=json", "--output=json"):
            return True
        if word in ("-o", "--output") and words[index + 1 : index + 2] == ["json"]:
            return True
    return False


def _report(exc: Exception, name: str, *, as_json: bool) -> int:
    error, exit_code = _translate(exc, name)
    if as_json:
        sys.stderr.write(json.dumps(error, ensure_ascii=False) + "\n")
    else:
        hint = f"\n  {error['hint']}" if error["hint"] else ""
        say(f"{name}: {error['message']}{hint}")
    return exit_code


def _translate(exc: Exception, name: str) -> tuple[Mapping[str, str], int]:
    match exc:
        case RdcError():
            return exc.to_json(), exc.exit_code
        case click.UsageError():
            path = exc.ctx.command_path if exc.ctx is not None else name
            words = " ".join(exc.format_message().split())  # click lists choices with line breaks and tabs
            error = {"code": "usage", "message": words, "hint": f"see '{path} --help'"}
            return error, _EXIT_USAGE
        case click.ClickException():
            return {"code": "error", "message": exc.format_message(), "hint": ""}, exc.exit_code
        case PermissionError():
            return {"code": "permission", "message": _os_words(exc), "hint": "run it as root"}, 4
        case OSError() if exc.errno in _FULL:
            hint = "make room, or mount it writable, and run it again"
            return {"code": "no-room", "message": _os_words(exc), "hint": hint}, 1
        case _:
            return _unforeseen(exc), 1


def _os_words(exc: OSError) -> str:
    what = exc.strerror or str(exc)
    return f"cannot use {exc.filename}: {what}" if isinstance(exc.filename, str) else f"cannot write: {what}"


def _unforeseen(exc: Exception) -> Mapping[str, str]:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(exc)
    what = str(exc) or "no details"
    hint = f"this should not happen; set {DEBUG_VARIABLE}=1 to see where, and report it"
    return {"code": "internal", "message": f"unexpected {type(exc).__name__}: {what}", "hint": hint}
