"""Command that demonstrates the platform."""

import json
from functools import partial

import click

from ops.cli.commands.common import as_json_option
from ops.demo.run import run


@click.command(epilog="Example: millrace demo")
@as_json_option
def demo(as_json: bool) -> None:
    """Embeds summaries of Python's library functions, and finds functions by meaning."""
    result = run(partial(click.echo, err=as_json))
    if as_json:
        click.echo(json.dumps(result))
