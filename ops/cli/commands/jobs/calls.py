"""Commands that make a call and list models."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from jobs import ids
from ops.cli.commands.common import JsonObject, client_command, show
from ops.client.client import Client


@click.command(epilog='Example: millrace infer --model minilm "how do I parse JSON"')
@click.argument("text")
@click.option("--model", required=True, help="Name, or name@version.")
@click.option("--is-json", is_flag=True, help="Parse TEXT as JSON.")
@click.option("--params", type=JsonObject(), help="Parameters of the model, a JSON object.")
@click.option("--timeout-ms", default=10_000, show_default=True, help="Deadline.")
@client_command
def infer(
    client: Client, text: str, model: str, is_json: bool, params: dict[str, Any] | None,
    timeout_ms: int, as_json: bool,
) -> None:  # fmt: skip
    """Makes one call with TEXT and prints its output as JSON; --json prints the whole response."""
    try:
        value = json.loads(text) if is_json else text
    except ValueError as error:
        raise click.BadParameter(f"not valid JSON: {error}", param_hint="TEXT") from None
    response = client.infer(model, value, timeout_ms, key=str(ids.new()), params=params or {})
    click.echo(json.dumps(response if as_json else response["output"]))


@click.command(epilog="Example: millrace models")
@client_command
def models(client: Client, as_json: bool) -> None:
    """Lists model versions, and their state in the workers."""
    versions = client.get("/models")["data"]
    show(versions, _lines(versions), as_json)


def _lines(versions: Sequence[dict[str, Any]]) -> Iterator[str]:
    for model in versions:
        states = ", ".join(f"{count} {state}" for state, count in model["states"].items())
        load = f", loads in {model['load_ms'] / 1000:.1f} s" if model["load_ms"] else ""
        yield f"{model['name']}@{model['version']}: {states or 'no worker'}{load}"
        if model["error"]:
            yield f"    {model['error']}"
