"""What every command that talks to an api shares."""

from collections.abc import Callable
from typing import Any

import click

from jobs.settings import Settings
from ops import configure
from ops.client import Client, trusting

_KEY = "millrace.key"


class Number(click.FloatRange):
    """In a range, where click would take `nan` for one: it is below nothing, and above nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if found != found:
            self.fail(f"{value} is no number", param, ctx)
        return found


def client_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options --url, --key and --json."""
    function = click.option("--json", "as_json", is_flag=True, help="print JSON")(function)
    function = click.option(
        "--key",
        envvar="MILLRACE_API_KEY",
        expose_value=False,
        callback=_remember,
        help="an API key; the environment keeps it better: MILLRACE_API_KEY",
    )(function)
    return click.option("--url", envvar="MILLRACE_URL", help="the api's address")(function)


def _remember(context: click.Context, parameter: click.Parameter, key: str | None) -> None:
    context.meta[_KEY] = key


def connect(url: str | None) -> Client:
    """The api at that address, or the one of this configuration; with the key that was given."""
    found: Settings = configure.load()
    key = click.get_current_context().meta.get(_KEY)
    url = url or found.url
    return Client(url, key, trusting(found) if url.startswith("https:") else True)
