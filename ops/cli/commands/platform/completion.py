"""Command that prints shell completions."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
_NAME, _VARIABLE = "millrace", "_MILLRACE_COMPLETE"


@click.command(epilog='Example: eval "$(millrace completion bash)"')
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Prints a script that completes commands and options in SHELL.

    bash and zsh: the example, in ~/.bashrc or ~/.zshrc. fish: millrace completion fish >
    ~/.config/fish/completions/millrace.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(context.find_root().command, {}, _NAME, _VARIABLE).source())
