"""Commands of the autoscaler."""

from collections.abc import Iterator
from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import JsonObject, client_command, show, show_list

_ROUTE = "/admin/pools"


@click.group(epilog="Example: millrace scale set default --max 6")
def scale() -> None:
    """Shows the load of pools, and sets, pauses or stops their autoscaler."""


@scale.command(epilog="Example: millrace scale status")
@click.argument("pool", default="")
@client_command
def status(client: Client, pool: str, as_json: bool) -> None:
    """Shows all pools, or POOL: load, workers, replicas that were decided on and why."""
    if pool:
        found = client.get(f"{_ROUTE}/{pool}")
        show(found, _lines(found), as_json)
    else:
        page = client.get(_ROUTE)
        none = "no pools: start a worker, with `millrace worker` or `millrace up`"
        show_list(page, (line for found in page["data"] for line in _lines(found)), as_json, none)


@scale.command("set", epilog="Example: millrace scale set gpu --min 1 --max 8 --actuator command")
@click.argument("pool")
@click.option("--min", "least", type=click.IntRange(0), help="Fewest replicas; default: 1.")
@click.option("--max", "most", type=click.IntRange(0), help="Most replicas.")
@click.option(
    "--actuator", type=click.Choice(["plan", "command", "local", "kubernetes"]),
    help="Who starts and ends workers; default: plan, which only writes down what is decided.",
)  # fmt: skip
@click.option("--rule", "rules", multiple=True, help="'queue above 500 for 30 s: +3'; repeatable.")
@click.option("--policy", type=JsonObject(), default="{}", help="Further terms of the policy.")
@client_command
def set_policy(
    client: Client, pool: str, least: int | None, most: int | None, actuator: str | None,
    rules: tuple[str, ...], policy: dict[str, Any], as_json: bool,
) -> None:  # fmt: skip
    """Turns the autoscaler of POOL on, or changes the terms that are given."""
    given = {
        "min_replicas": least, "max_replicas": most, "actuator": actuator,
        "rules": list(rules) or None,
    }  # fmt: skip
    scaling = client.get(f"{_ROUTE}/{pool}")["scaling"] or {"policy": {}}
    terms = {**scaling["policy"], **policy, **{k: v for k, v in given.items() if v is not None}}
    found = client.request("PUT", f"{_ROUTE}/{pool}/scaling", json={"policy": terms})
    show(found, _lines(found), as_json)


@scale.command(epilog="Example: millrace scale pause gpu --replicas 3 --reason 'a load test'")
@click.argument("pool")
@click.option("--replicas", type=click.IntRange(0), help="To have meanwhile; default: as it has.")
@click.option("--reason", default="", help="Written into its events and the audit log.")
@client_command
def pause(client: Client, pool: str, replicas: int | None, reason: str, as_json: bool) -> None:
    """Stops decisions about POOL."""
    body = {"reason": reason, "replicas": replicas}
    found = client.request("POST", f"{_ROUTE}/{pool}/scaling/pause", json=body)
    show(found, _lines(found), as_json)


@scale.command(epilog="Example: millrace scale resume gpu")
@click.argument("pool")
@click.option("--reason", default="", help="Written into its events and the audit log.")
@client_command
def resume(client: Client, pool: str, reason: str, as_json: bool) -> None:
    """Lets decisions about POOL go on."""
    body = {"reason": reason}
    found = client.request("POST", f"{_ROUTE}/{pool}/scaling/resume", json=body)
    show(found, _lines(found), as_json)


@scale.command(epilog="Example: millrace scale off gpu")
@click.argument("pool")
@client_command
def off(client: Client, pool: str, as_json: bool) -> None:
    """Turns the autoscaler of POOL off; its workers stay."""
    found = client.request("DELETE", f"{_ROUTE}/{pool}/scaling")
    show(found, _lines(found), as_json)


@scale.command(epilog="Example: millrace scale history gpu")
@click.argument("pool")
@client_command
def history(client: Client, pool: str, as_json: bool) -> None:
    """Lists what was decided about POOL, and said by people, with the reasons."""
    events = client.get(f"{_ROUTE}/{pool}")["events"]
    none = f"nothing was decided about {pool} yet; `millrace scale set {pool}` turns it on"
    show_list(events, map(_event, reversed(events)), as_json, none)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """Describes a pool in two lines."""
    load, workers = found["load"], found["workers"]
    states = ", ".join(f"{count} {state}" for state, count in sorted(workers.items()))
    words = [found["pool"], states or "no workers"]
    if load["lag_s"] is not None:
        words += [f"used {load['capacity_used']:.0%}", f"lag {1000 * load['lag_s']:.0f} ms",
                  f"{load['requests_s']:.0f} requests/s"]  # fmt: skip
    elif load["capacity_used"] is not None:
        words += [f"used {load['capacity_used']:.0%}", f"drain {load['drain_s']:.0f} s",
                  f"refused {load['refused']:.1%}", f"late {load['late']:.1%}"]  # fmt: skip
    yield "  ".join(words)
    if scaling := found["scaling"]:
        policy = scaling["policy"]
        yield "  ".join([
            f"    {'paused' if scaling['paused'] else 'on'}",
            f"{policy['min_replicas']} to {policy['max_replicas']} by {policy['actuator']}",
            f"desired {'-' if scaling['desired'] is None else scaling['desired']}",
            scaling["reason"],
        ])  # fmt: skip


def _event(event: dict[str, Any]) -> str:
    desired = "" if event["desired"] is None else f" {event['desired']}"
    by = "" if event["actor"] == "keeper" else f" (by {event['actor']})"
    return f"{event['at']}  {event['act']}{desired}: {event['reason']}{by}"
