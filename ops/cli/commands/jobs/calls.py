"""Command that makes a call."""

import json
from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import JsonObject, client_command


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
    response = client.infer(model, value, params=params, timeout_s=timeout_ms / 1000)
    click.echo(json.dumps(response if as_json else response["output"]))
