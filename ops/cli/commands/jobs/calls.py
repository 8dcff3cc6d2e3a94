"""Commands of a client that wants one answer, and of who asks who would give it."""

import json
from typing import Any

import click

from jobs import ids
from ops.cli.commands.common import JsonObject, client_command, connect


@click.command(epilog='Example: millrace infer --model minilm "how do I parse JSON"')
@click.argument("text")
@click.option("--model", required=True)
@click.option("--is-json", is_flag=True, help="TEXT is JSON: an input that is no text")
@click.option("--params", type=JsonObject(), help="the model's parameters, as a JSON object")
@click.option("--timeout-ms", default=10_000, show_default=True)
@client_command
def infer(
    text: str, model: str, is_json: bool, params: dict[str, Any] | None, timeout_ms: int,
    url: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Makes one call with TEXT and prints its output, as JSON; --json prints the whole answer."""
    try:
        value = json.loads(text) if is_json else text
    except ValueError as error:
        raise click.BadParameter(f"not valid JSON: {error}", param_hint="TEXT") from None
    answer = connect(url).infer(model, value, timeout_ms, key=str(ids.new()), params=params or {})
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
