"""Command that shows the last lines of a worker's log."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import client_command

_LEVELS = ["debug", "info", "warning", "error", "critical"]
EVERY_S = 1.0  # between two looks for more lines
_OWN = ("id", "timestamp", "level", "logger", "message", "exception", "worker", "process", "pid")


@click.command("logs", epilog="Example: millrace worker logs 12 --level warning --follow")
@click.argument("id", type=click.IntRange(1))
@click.option(
    "--level", type=click.Choice(_LEVELS), default="debug", show_default=True,
    help="Least severe level.",
)  # fmt: skip
@click.option("--text", default="", help="Only lines with this, in any case.")
@click.option("--lines", type=click.IntRange(1, 1000), default=200, show_default=True, help="Most.")
@click.option("--follow", is_flag=True, help="Print lines as they come, until Ctrl-C.")
@client_command
def logs(
    client: Client, id: int, level: str, text: str, lines: int, follow: bool, as_json: bool
) -> None:
    """Prints the last lines of a worker's log, as they are kept in Redis."""
    after = ""
    while True:
        query = {"level": level, "text": text, "limit": lines, "after": after}
        page = client.get(f"/workers/{id}/logs", **query)
        for line in page["data"]:
            click.echo(json.dumps(line) if as_json else "\n".join(_texts(line)))
        if not follow:
            if not page["data"]:
                click.echo("no such lines; a worker keeps its last ones for a day", err=True)
            return
        after = page["next"] or ""
        threading.Event().wait(EVERY_S)


def _texts(line: dict[str, Any]) -> Iterator[str]:
    more = " ".join(f"{name}={value}" for name, value in line.items() if name not in _OWN)
    at = line["timestamp"].replace("T", " ").removesuffix("Z")
    yield f"{at} {line['level']} {line['logger']}: {line['message']}" + (
        f" [{more}]" if more else ""
    )
    if line["exception"]:
        yield line["exception"]
