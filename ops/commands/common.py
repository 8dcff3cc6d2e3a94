"""What every command that talks to an api shares."""

from collections.abc import Callable
from typing import Any

import click

from jobs.settings import Settings
from ops import configure
from ops.client import Client, trusting


def client_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options --url and --json."""
    function = click.option("--json", "as_json", is_flag=True, help="print JSON")(function)
    return click.option("--url", envvar="MILLRACE_URL", help="the api's address")(function)


def connect(url: str | None) -> Client:
    """The api at that address, or the one of this configuration."""
    found: Settings = configure.load()
    url = url or found.url
    return Client(url, trusting(found) if url.startswith("https:") else True)
