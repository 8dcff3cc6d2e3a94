"""Error that ends a benchmark."""

import click


class BenchError(click.ClickException):
    """Reports in one line what can't be measured, or which result was wrong."""
