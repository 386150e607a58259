"""Writes docs/cli.md from the commands themselves: `python -m cli.document [--check]`.

A test runs the check, so that the page never says anything but what `--help` says.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from cli.rdc.main import rdc
from cli.render import emit, say
from cli.renet.main import renet

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
_WIDTH = 100
_HEAD = """\
# Command line

`rdc` is for the operator, `renet` runs on the machine. This page is made from `--help` by `scripts/cli-docs`.
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(_section(path, text) for root in (rdc, renet) for path, text in _helps(root))


def _section(path: str, text: str) -> str:
    return f"\n## {path}\n\n```text\n{text}\n```\n"


def _helps(root: click.Group) -> Iterator[tuple[str, str]]:
    name = root.name or ""
    ctx = click.Context(root, info_name=name, terminal_width=_WIDTH, **root.context_settings)
    yield from _below(root, ctx)


def _below(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, str]]:
    help_text = "\n".join(line.rstrip() for line in command.get_help(ctx).splitlines())
    yield ctx.command_path, help_text
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child is not None and not child.hidden:
                below = click.Context(child, parent=ctx, info_name=name, terminal_width=_WIDTH)
                yield from _below(child, below)


def main(words: list[str]) -> int:
    """Write the page; with `--check` only say whether it is as it should be (0) or not (1)."""
    if words == ["--check"]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != page():
            say(f"{PAGE} is out of date: run scripts/cli-docs")
            return 1
        return 0
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    emit(f"{PAGE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
