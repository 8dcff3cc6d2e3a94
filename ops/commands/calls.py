"""The command of a client that wants one answer."""

import json

import click

from jobs import ids
from ops.commands.common import client_command, connect


@click.command(epilog='Example: millrace infer --model minilm "how do I parse JSON"')
@click.argument("text")
@click.option("--model", required=True)
@click.option("--timeout-ms", default=10_000, show_default=True)
@client_command
def infer(text: str, model: str, timeout_ms: int, url: str | None, as_json: bool) -> None:
    """Makes one call and prints its output."""
    answer = connect(url).infer(model, text, timeout_ms, key=str(ids.new()))
    click.echo(json.dumps(answer if as_json else answer["output"]))


COMMANDS = (infer,)
