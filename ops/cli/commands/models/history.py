"""Command that shows the figures of a model over time."""

from collections.abc import Iterator
from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import client_command, show

_RANGES = ["30m", "6h", "24h", "7d", "30d"]
_HEAD = (
    "from (UTC)        calls/s  items/s   p50 ms   p95 ms  waiting  refused/s  failed/s  devices"
)


@click.command(epilog="Example: millrace models history minilm --range 6h")
@click.argument("name")
@click.option(
    "--range", "span", type=click.Choice(_RANGES), default="24h", show_default=True, help="Time."
)
@client_command
def history(client: Client, name: str, span: str, as_json: bool) -> None:
    """Shows what a model, or NAME@VERSION, answered, how fast, and what waited, over time. Devices:
    how many were busy with it."""
    found = [
        client.get("/history", about=f"model:{key}", range=span)
        for key in ([name] if "@" in name else _versions(client, name))
    ]
    show(found, [line for one in found for line in _lines(one)], as_json)


def _versions(client: Client, name: str) -> list[str]:
    models = client.get("/models")["data"]
    found = [f"{one['name']}@{one['version']}" for one in models if one["name"] == name]
    if not found:
        raise click.UsageError(f"there is no model {name}; `millrace models` lists them")
    return found


def _lines(one: dict[str, Any]) -> Iterator[str]:
    yield f"{one['about'].removeprefix('model:')}, every {one['step_s'] // 60} min"
    yield f"    {_HEAD}" if one["data"] else "    no figures: it hasn't run in that time"
    for point in one["data"]:
        ms = [None if point[q] is None else 1000 * point[q] for q in ("p50_s", "p95_s")]
        figures = [
            (point["calls_s"], 9), (point["items_s"], 9), (ms[0], 9), (ms[1], 9),
            (point["waiting"], 9), (point["refused_s"], 11), (point["failed_s"], 10),
            (point["busy"], 9),
        ]  # fmt: skip
        texts = (f"{'-' if value is None else f'{value:.4g}':>{width}}" for value, width in figures)
        yield f"    {point['at'][:16].replace('T', ' ')}{''.join(texts)}"
