"""Command that shows and changes the limits of a tenant."""

from collections.abc import Callable
from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import client_options, show_list

_NUMBERS = {
    "requests_per_s": (float, "Calls a second; without --model, with submissions of jobs"),
    "tokens_per_s": (float, "Size of calls a second, in the unit of their model"),
    "tokens_per_min": (float, "The same a minute, with tokens that are generated"),
    "calls_in_flight": (int, "Calls at a time"),
    "queued_items": (int, "Items without a result, over all jobs"),
    "stored_bytes": (int, "All that jobs store, results once they have ended, and files"),
    "job_items": (int, "Items of one job"),
}


def _numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, (kind, text) in reversed(_NUMBERS.items()):
        option = click.option(
            f"--{name.replace('_', '-')}", type=kind, help=f"{text}; 0: no limit."
        )
        function = option(function)
    return function


@click.command(epilog="Example: millrace limits acme --model minilm --requests-per-s 100")
@click.argument("tenant")
@click.option("--model", default="", help="Model; default: all together.")
@click.option("--key", default="", help="Id of an API key (key_…); default: all together.")
@click.option("--clear", is_flag=True, help="Remove the limits of that model and key.")
@_numbers
@client_options("--api-key")
def limits(
    client: Client, tenant: str, model: str, key: str, clear: bool, as_json: bool, **numbers: Any
) -> None:
    """Shows a tenant's limits, or changes those that are named."""
    path = f"/tenants/{tenant}/limits"
    limits = client.get(path)
    changes = {name: value or None for name, value in numbers.items() if value is not None}
    if changes or clear:
        data = _changed(limits["data"], model, key, {} if clear else changes, clear)
        limits = client.request("PUT", path, json={"data": data})
    none = f"{tenant} has no limits; set one: millrace limits {tenant} --requests-per-s 100"
    show_list(limits, map(_line, limits["data"]), as_json, none)


def _changed(
    data: list[dict[str, Any]], model: str, key: str, changes: dict[str, Any], clear: bool
) -> list[dict[str, Any]]:
    """Returns all limits, with those of this model and key changed."""
    same = [limit for limit in data if (limit["model"], limit["key"]) == (model, key)]
    others = [limit for limit in data if limit not in same]
    before = same[0] if same and not clear else {}
    after = {**before, "model": model, "key": key, **changes}
    return [*others, after] if any(after.get(name) for name in _NUMBERS) else others


def _line(limit: dict[str, Any]) -> str:
    model, key = limit["model"] or "all models", limit["key"] or "all keys"
    values = [f"{name}={limit[name]:g}" for name in _NUMBERS if limit[name] is not None]
    return "  ".join([model, key, *values])
