"""Commands on webhooks."""

import json
from typing import Any

import click

from ops.cli.commands.common import client_command, connect


@click.command(epilog="Example: millrace webhooks job_01kajf…")
@click.argument("id")
@client_command
def webhooks(id: str, url: str | None, as_json: bool) -> None:
    """Lists the webhook deliveries of a job."""
    found = connect(url).request("GET", f"/jobs/{id}/webhooks")
    if as_json:
        click.echo(json.dumps(found))
        return
    for delivery in found["data"]:
        _show_delivery(delivery, False)


@click.command(epilog="Example: millrace redeliver job_01kajf…")
@click.argument("id")
@client_command
def redeliver(id: str, url: str | None, as_json: bool) -> None:
    """Sends a job's latest webhook again, under the same webhook-id."""
    found = connect(url).request("POST", f"/jobs/{id}/webhooks/redeliver")
    _show_delivery(found, as_json)


def _show_delivery(delivery: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(delivery))
        return
    next_try = delivery["next_try_at"] and f"next try {delivery['next_try_at']}"
    notes = filter(None, (delivery["last_error"], next_try))
    tries = f"{delivery['state']} after {delivery['tries']} tries"
    click.echo("  ".join([delivery["id"], delivery["type"], tries, *notes]))


@click.command("webhook-secret", epilog="Example: millrace webhook-secret --rotate")
@click.option("--rotate", is_flag=True, help="Create a new one; the old one signs for 24 h more.")
@client_command
def webhook_secret(rotate: bool, url: str | None, as_json: bool) -> None:
    """Shows the secret that verifies webhooks: once, when it is created."""
    found = connect(url).request("POST" if rotate else "GET", "/webhooks/secret")
    if as_json:
        click.echo(json.dumps(found))
        return
    shown = f"made {found['created_at']}; it was shown before, --rotate makes a new one"
    click.echo(found["secret"] or shown)


@click.command(
    "webhook-endpoint", epilog="Example: millrace webhook-endpoint https://acme.example/usage"
)
@click.argument("endpoint", required=False)
@click.option("--none", "nowhere", is_flag=True, help="Remove the endpoint.")
@client_command
def webhook_endpoint(endpoint: str | None, nowhere: bool, url: str | None, as_json: bool) -> None:
    """Shows or sets the endpoint that is notified near the soft cap."""
    client = connect(url)
    if endpoint or nowhere:
        found = client.request("PUT", "/webhooks/endpoint", json={"url": endpoint})
    else:
        found = client.request("GET", "/webhooks/endpoint")
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(found["url"] or "nowhere")
    for delivery in found["deliveries"]:
        _show_delivery(delivery, False)


COMMANDS = (webhooks, redeliver, webhook_secret, webhook_endpoint)
