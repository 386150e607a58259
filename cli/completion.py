"""`completion`: the shell script that makes a shell ask the program for completions."""

import click
from click.shell_completion import get_completion_class

from cli.render import emit


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, repos and devices in SHELL.

    \b
    bash:  eval "$(rdc completion bash)"         in ~/.bashrc
    zsh:   eval "$(rdc completion zsh)"          in ~/.zshrc
    fish:  rdc completion fish | source          in ~/.config/fish/config.fish
    """  # noqa: D301 - click reads the backspace as "do not wrap"
    root = ctx.find_root()
    program = root.info_name or "rdc"
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}", ctx)
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    emit(found(root.command, {}, program, variable).source() + "\n")
