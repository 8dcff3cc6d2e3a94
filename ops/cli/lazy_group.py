"""Group of commands that are imported when they run, not when they are listed or completed."""

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

LazyCommands = Mapping[str, tuple[str, str]]
"""By command: its module in ops/cli/commands, with ":name" where it isn't named as the command, and
its line in the list of commands."""


class _Commands(UserDict[str, click.Command]):
    """Commands by name; one that is looked up is imported from its module."""

    def __init__(self, lazy: LazyCommands) -> None:
        super().__init__(dict.fromkeys(lazy, click.Command(None)))
        self._lazy = lazy

    def __getitem__(self, name: str) -> click.Command:
        module, _, attribute = self._lazy[name][0].partition(":")
        found = import_module(f"ops.cli.commands.{module}")
        command: click.Command = getattr(found, attribute or name.replace("-", "_"))
        return command


class LazyGroup(click.Group):
    """Group that loads the command that runs alone."""

    def __init__(self, name: str, lazy: LazyCommands, **attributes: Any) -> None:
        super().__init__(name, _Commands(lazy), **attributes)
        self._lines = {name: line for name, (_, line) in sorted(lazy.items())}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._lines.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes a command's name, or an option."""
        found = [CompletionItem(name, help=line) for name, line in self._lines.items()]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [item for item in found if item.value.startswith(incomplete)] + options
