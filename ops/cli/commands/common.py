"""Options, connection and output that the commands share."""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:  # loaded by commands that ask the api
    from millrace import Client

_CLIENTS_OWN = {"MILLRACE_URL", "MILLRACE_API_KEY"}

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Number(click.FloatRange):
    """Number in a range; refuses `nan`, which click accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parses an argument."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value} is no number", param, ctx)
        return number


class Sha256(click.ParamType[bytes]):
    """SHA-256 in hexadecimal."""

    name = "hash"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parses an argument."""
        try:
            hash = bytes.fromhex(value)
        except ValueError:
            hash = b""
        if len(hash) != 32:
            self.fail("a hash has 64 hexadecimal digits", param, ctx)
        return hash


class JsonObject(click.ParamType[dict[str, Any]]):
    """JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parses an argument."""
        try:
            parsed = json.loads(value)
        except ValueError as error:
            self.fail(f"not valid JSON: {error}", param, ctx)
        if not isinstance(parsed, dict):
            self.fail("must be a JSON object", param, ctx)
        return parsed


def pairs(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Any:
    """Parses values NAME=VALUE of an option that may be repeated."""
    parted = [text.partition("=") for text in given]
    if wrong := [name for name, equals, _ in parted if not equals]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in parted}


def client_options(*key: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Passes a command its `client`, and `as_json`; the API key has these names."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        """Adds --url, the API key and --json."""

        @click.option("--url", envvar="MILLRACE_URL", help="Address of the api.")
        @click.option(
            *key,
            envvar="MILLRACE_API_KEY",
            help="API key; safer in the environment: MILLRACE_API_KEY.",
        )
        @as_json_option
        @wraps(function)
        def run(url: str | None, api_key: str | None, **options: Any) -> None:
            """Runs the command with a client."""
            with closing(_connect(url, api_key)) as client:
                function(client=client, **options)

        return run

    return decorate


client_command = client_options("--api-key", "--key")


def _connect(url: str | None, key: str | None) -> "Client":
    """Client of the api at that address, or of this configuration's.

    The configuration takes 130 ms to read, so it is read only where it matters: for an address, or
    for the certificates of https.
    """
    from millrace import Client

    if url.lower().startswith("http:") if url else not _is_configured():
        return Client(url, key)
    from ops.embedded import defaults

    settings = defaults.load()
    url = url or settings.url
    verify = defaults.own_tls_context(settings) if url.lower().startswith("https:") else True
    return Client(url, key, verify=verify)


def _is_configured() -> bool:
    """Returns True where the environment has a setting: the api may be elsewhere by it."""
    return any(name.startswith("MILLRACE_") and name not in _CLIENTS_OWN for name in os.environ)


def show_list(page: Any, lines: Iterable[str], as_json: bool, none: str) -> None:
    """Prints a list as JSON, or else its lines. none: said where there are none, on standard error:
    that there is nothing, and what to do next."""
    found = () if as_json else list(lines)
    show(page, found, as_json)
    if not found and not as_json:
        click.echo(none, err=True)


def show(value: Any, lines: str | Iterable[str], as_json: bool) -> None:
    """Prints a value as JSON, or else its lines."""
    if as_json:
        lines = json.dumps(value)
    for line in [lines] if isinstance(lines, str) else lines:
        click.echo(line)
