"""Commands of an admin: what tenants may use at most."""

import json
from collections.abc import Callable
from typing import Any

import click

from ops.cli.commands.common import client_command, connect

_NUMBERS = {
    "requests_per_s": (float, "calls a second; without --model: and submissions of jobs"),
    "tokens_per_s": (float, "of calls, in the unit of their model"),
    "calls_in_flight": (int, "calls at a time"),
    "queued_items": (int, "items without a result, over all jobs"),
    "stored_bytes": (int, "inputs of all jobs, and outputs of those that ended"),
    "job_items": (int, "items of one job"),
}


def _numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, (kind, text) in reversed(_NUMBERS.items()):
        option = click.option(f"--{name.replace('_', '-')}", type=kind, help=f"{text}; 0: no limit")
        function = option(function)
    return function


@click.command(epilog="Example: millrace limits acme --model minilm --requests-per-s 100")
@click.argument("tenant")
@click.option("--model", default="", help="for this model; else for all of them together")
@click.option("--of-key", default="", help="for this key (key_…); else for all of them together")
@click.option("--clear", is_flag=True, help="no limit of that model and key is left")
@_numbers
@client_command
def limits(
    tenant: str,
    model: str,
    of_key: str,
    clear: bool,
    url: str | None,
    as_json: bool,
    **numbers: Any,
) -> None:
    """Shows a tenant's limits, or changes those that are named."""
    client, path = connect(url), f"/tenants/{tenant}/limits"
    found = client.request("GET", path)
    changes = {name: value or None for name, value in numbers.items() if value is not None}
    if changes or clear:
        data = _changed(found["data"], model, of_key, {} if clear else changes, clear)
        found = client.request("PUT", path, json={"data": data})
    if as_json:
        click.echo(json.dumps(found))
        return
    for limit in found["data"]:
        _show(limit)


def _changed(
    data: list[dict[str, Any]], model: str, key: str, changes: dict[str, Any], clear: bool
) -> list[dict[str, Any]]:
    """All limits, with those of this model and key as they shall be."""
    is_it = [(limit["model"], limit["key"]) == (model, key) for limit in data]
    others = [limit for limit, it in zip(data, is_it, strict=True) if not it]
    before = next((limit for limit, it in zip(data, is_it, strict=True) if it and not clear), {})
    after = {**before, "model": model, "key": key, **changes}
    return [*others, after] if any(after.get(name) for name in _NUMBERS) else others


def _show(limit: dict[str, Any]) -> None:
    model, key = limit["model"] or "all models", limit["key"] or "all keys"
    set_ones = [f"{name}={limit[name]:g}" for name in _NUMBERS if limit[name] is not None]
    click.echo("  ".join([model, key, *set_ones]))


COMMANDS = (limits,)
