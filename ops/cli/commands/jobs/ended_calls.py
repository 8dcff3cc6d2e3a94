"""Command that lists calls that ended within the last hour."""

from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import Number, client_command, show_list

_NONE = "no calls within the last hour; make one: millrace infer echo hello"
_NONE_SUCH = "no such calls; `millrace calls` lists all of the last hour"


@click.command(epilog="Example: millrace calls --outcome late --slower 500")
@click.option("--model", help="Only calls of this model, or NAME@VERSION.")
@click.option("--tenant", help="Only calls of this tenant; operators: * for all.")
@click.option(
    "--outcome", help="succeeded, an error's code, or: refused, late, failed (any other error)."
)
@click.option("--slower", "slower_ms", type=Number(0), help="Only calls that took longer, ms.")
@click.option("--text", help="Only calls with this in their id.")
@click.option("--limit", default=20, show_default=True, help="Number of calls.")
@click.option("--after", help="Only calls made before this one.")
@client_command
def calls(client: Client, as_json: bool, **query: Any) -> None:
    """Lists calls that ended within the last hour, the newest first; `millrace why` explains one.
    At high rates only failed calls and the slowest are recorded."""
    page = client.get("/calls", **query)
    asked = any(value for name, value in query.items() if name != "limit")
    show_list(page, map(line, page["data"]), as_json, _NONE_SUCH if asked else _NONE)
    if as_json:
        return
    if left_out := page.get("left_out"):
        click.echo(f"not recorded, at a high rate: {left_out} more", err=True)
    if page["next"]:
        click.echo(f"there are more: --after {page['next']}", err=True)


def line(call: dict[str, Any]) -> str:
    """Describes a call in a line."""
    timing = call["timing"]
    words = [
        call["ended_at"][:19].replace("T", " "),
        call["id"],
        call["tenant"],
        f"{call['model']}@{call['version']}",
        call["outcome"] + (" late" if call["late"] and call["outcome"] == "succeeded" else ""),
        f"{timing.get('total_ms', 0):,.1f} ms",
        f"queue {timing['queue_ms']:,.1f} ms" if "queue_ms" in timing else "",
        f"batch {timing['batch_size']}" if "batch_size" in timing else "",
        f"size {call['size'] if call['units'] is None else call['units']}",
        f"worker {call['worker']}" if call["worker"] else "",
    ]
    return "  ".join(filter(None, words))
