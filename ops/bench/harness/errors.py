"""What keeps a benchmark from measuring, or what it found to be wrong."""

import click


class BenchError(click.ClickException):
    """One line for whoever runs the benchmark."""
