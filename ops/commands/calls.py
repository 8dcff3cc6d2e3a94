"""Commands of a client that wants one answer, and of who asks who would give it."""

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


@click.command(epilog="Example: millrace models")
@client_command
def models(url: str | None, as_json: bool) -> None:
    """Shows every model version, and in how many workers it stands how."""
    found = connect(url).request("GET", "/models")["data"]
    if as_json:
        click.echo(json.dumps(found))
        return
    for model in found:
        states = ", ".join(f"{count} {state}" for state, count in model["states"].items())
        load = f", loads in {model['load_ms'] / 1000:.1f} s" if model["load_ms"] else ""
        click.echo(f"{model['name']}@{model['version']}: {states or 'no worker'}{load}")
        if model["error"]:
            click.echo(f"    {model['error']}")


COMMANDS = (infer, models)
