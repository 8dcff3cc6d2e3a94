"""Command that sums up usage."""

from collections.abc import Iterator
from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import client_command, show, show_list


@click.command(epilog="Example: millrace usage --by model,day --from 2026-11-01 --csv > usage.csv")
@click.option("--by", default="model,day", show_default=True,
              help="Columns of tenant, model, version, class, kind, day, month.")  # fmt: skip
@click.option("--from", "since", help="First day, UTC; default: the month's first.")
@click.option("--to", "until", help="Day after the last one; default: tomorrow.")
@click.option("--tenant", help="Another tenant, or * for all (operators; the default by tenant).")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@client_command
def usage(
    client: Client, by: str, since: str | None, until: str | None, tenant: str | None,
    as_csv: bool, as_json: bool,
) -> None:  # fmt: skip
    """Sums up usage and its cost."""
    query = {"by": by, "from": since, "to": until, "tenant": tenant}
    if as_csv:
        show(None, map(bytes.decode, client.lines("/usage", **query, format="csv")), as_json=False)
        return
    sums = client.get("/usage", **query)
    columns = list(filter(None, by.split(",")))
    lines = _lines(sums, columns) if sums["data"] else ()
    none = f"no usage {'in that time' if since or until else 'this month'}; calls count after a "
    none += "minute or two, --from and --to choose other days"
    show_list(sums, lines, as_json, none)


def _lines(usage: dict[str, Any], columns: list[str]) -> Iterator[str]:
    for group in usage["data"]:
        yield words([group[name] for name in columns], group)
    yield words(["total"], usage["total"])


def words(names: list[str], sums: dict[str, Any]) -> str:
    """Returns the sums of a group in words, behind its names."""
    units = ", ".join(f"{count:,} {unit}" for unit, count in sums["units"].items())
    ended = f"{sums['succeeded']:,} succeeded, {sums['failed']:,} failed"
    took = f"{sums['device_ms'] / 1000:,.3f} s on the device"
    tokens = _tokens(sums["tokens"])
    parts = *names, ended, units, tokens, took, sums["amount"], _cost(sums)
    return "  ".join(filter(None, parts))


def _cost(sums: dict[str, Any]) -> str:
    """Returns what a million items cost in device time; nothing where that isn't known."""
    if not (cost := sums.get("device_cost_per_million")):
        return ""
    most = f" to {cost['most']:g}" if cost["most"] != cost["least"] else ""
    return f"a million for {cost['least']:g}{most} of device time"


def _tokens(sums: dict[str, int]) -> str:
    """Returns the tokens of models that generate; nothing where there are none."""
    if not any(sums.values()):
        return ""
    return f"{sums['input']:,} tokens in ({sums['cached']:,} cached), {sums['output']:,} out"
