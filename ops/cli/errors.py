"""Reports errors that users can fix in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
import httpx

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
    except (httpx.HTTPError, MillraceError, SettingsError) as error:
        raise click.ClickException(_message(error)) from error


def _message(error: Exception) -> str:
    if isinstance(error, httpx.ConnectError):
        return "no api answers there; start one with `millrace up`, or set its address with --url"
    return f"the api: {error}" if isinstance(error, httpx.HTTPError) else str(error)
