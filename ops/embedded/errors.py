"""Errors of the embedded servers."""

import click


class EmbeddedError(click.ClickException):
    """Reports that an embedded server can't run. The message says how to fix it."""


class HomeInUse(EmbeddedError):
    """Reports that another process runs the servers of this home."""
