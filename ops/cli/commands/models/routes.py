"""Command that shows, sets and removes routes: shares of a model's calls by version."""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import click

from millrace import Client
from ops.cli.commands.common import client_options, show

ALL_TENANTS = "*"


@click.command(epilog="Example: millrace models route minilm 1=95 2=5 --sticky user --shadow 3=10")
@click.argument("name")
@click.argument("shares", nargs=-1, metavar="[VERSION=PERCENT]...")
@click.option("--tenant", default=ALL_TENANTS, show_default=True, help="Tenant; *: all others.")
@click.option(
    "--sticky",
    type=click.Choice(["none", "tenant", "user"]),
    default="none",
    show_default=True,
    help="Callers that stay with their version.",
)
@click.option("--shadow", metavar="VERSION=PERCENT", help="Version that gets copies of calls.")
@click.option("--remove", is_flag=True, help="Remove the route.")
@client_options("--api-key", "--key")
def route(
    client: Client, name: str, shares: Sequence[str], tenant: str, sticky: str, shadow: str | None,
    remove: bool, as_json: bool,
) -> None:  # fmt: skip
    """Shows the routes of model NAME, or sets one: the versions with their percent of the calls,
    which make 100. The version named last has the low end: raising its share takes nobody back."""
    path = f"/admin/models/{quote(name, safe='')}"
    own = f"{path}/routes/{quote(tenant, safe='')}"
    if remove:
        client.request("DELETE", own)
        return show([], ["removed"], as_json)
    if shares:
        body: dict[str, Any] = {
            "splits": [_share(text) for text in shares],
            "sticky": "" if sticky == "none" else sticky,
            "shadow": _share(shadow) if shadow else None,
        }
        client.request("PUT", own, json=body)
    elif shadow:
        raise click.UsageError("a shadow goes with the shares of a route, as in 1=100 --shadow 2=5")
    found = client.get(path)["routes"]
    return show(found, _lines(found), as_json)


def _share(text: str) -> dict[str, Any]:
    """Parses "version=percent"."""
    version, _, percent = text.rpartition("=")
    try:
        number = float(percent.removesuffix("%"))
    except ValueError:
        version = ""
    if not version:
        raise click.UsageError(f"{text!r} is no VERSION=PERCENT, as in 2=5")
    return {"version": version, "percent": number}


def _lines(routes: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not routes:
        yield "no route"
    for one in routes:
        who = "all tenants" if one["tenant"] == ALL_TENANTS else one["tenant"]
        shares = " ".join(f"{each['version']}={each['percent']:g}" for each in one["splits"])
        copied = one["shadow"]
        more = [
            f"sticky by {one['sticky']}" if one["sticky"] else "",
            f"shadow {copied['version']}={copied['percent']:g}" if copied else "",
        ]
        yield "  ".join(filter(None, (who, shares, *more)))
        for version, outcomes in (copied or {}).get("copies", {}).items():
            counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
            yield f"    copies for {copied['version']} of calls that {version} answered: {counts}"
