"""Reports errors that users can fix in one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from jobs.errors import MillraceError
from jobs.settings import SettingsError

INTERRUPTED = 130  # exit status after Ctrl-C, as in shells


@contextmanager
def reported() -> Iterator[None]:
    """Turns errors that users can fix into click's, which exit with a status and no trace."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        message = _message(error)
        if message is None:
            raise
        raise click.ClickException(message) from error


def _message(error: Exception) -> str | None:
    """Describes an error in a line; None where it is a fault of ours."""
    if isinstance(error, MillraceError | SettingsError):
        return str(error)
    httpx = sys.modules.get("httpx")  # commands that ask the api have loaded it
    if httpx is None or not isinstance(error, httpx.HTTPError):
        return None
    if isinstance(error, httpx.ConnectError):
        return "no api answers there; start one with `millrace up`, or set its address with --url"
    return f"the api: {error}"
