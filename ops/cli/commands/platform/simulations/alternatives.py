"""Commands that are another one with a certain option."""

from collections.abc import Mapping
from typing import Any

import click


class CommandWithAlternatives(click.Command):
    """Command that is another one where an option of that one is given.

    alternatives: by option.
    """

    def __init__(
        self, *args: Any, alternatives: Mapping[str, click.Command], **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._alternatives = alternatives

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Returns a context of this command, or of another."""
        given = {arg.partition("=")[0] for arg in args}
        for option, other in self._alternatives.items():
            if option in given:
                return other.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)
