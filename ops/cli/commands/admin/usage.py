"""Command that sums up usage."""

import json
from typing import Any

import click

from ops.cli.commands.common import client_command, connect


@click.command(epilog="Example: millrace usage --by model,day --from 2026-11-01 --csv > usage.csv")
@click.option("--by", default="model,day", show_default=True,
              help="Columns of tenant, model, version, class, kind, day, month.")  # fmt: skip
@click.option("--from", "since", help="First day, UTC; default: the month's first.")
@click.option("--to", "until", help="Day after the last one; default: tomorrow.")
@click.option("--tenant", help="Another tenant, or * for all (operators).")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@client_command
def usage(
    by: str, since: str | None, until: str | None, tenant: str | None, as_csv: bool,
    url: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Sums up usage and its cost."""
    parameters = {"by": by, "from": since, "to": until, "tenant": tenant}
    query = {name: value for name, value in parameters.items() if value is not None}
    client = connect(url)
    if as_csv:
        for line in client.usage_csv(**query):
            click.echo(line)
        return
    found = client.request("GET", "/usage", params=query)
    if as_json:
        click.echo(json.dumps(found))
        return
    names = [name for name in by.split(",") if name]
    for group in found["data"]:
        click.echo(_words([group[name] for name in names], group))
    click.echo(_words(["total"], found["total"]))


def _words(names: list[str], sums: dict[str, Any]) -> str:
    units = ", ".join(f"{count:,} {unit}" for unit, count in sums["units"].items())
    ended = f"{sums['succeeded']:,} succeeded, {sums['failed']:,} failed"
    took = f"{sums['device_ms'] / 1000:,.3f} s on the device"
    return "  ".join(filter(None, (*names, ended, units, took, sums["amount"])))


COMMANDS = (usage,)
