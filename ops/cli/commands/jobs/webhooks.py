"""Commands on webhooks."""

from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import client_command, show, show_list


@click.command(epilog="Example: millrace webhooks job_01kajf…")
@click.argument("id")
@client_command
def webhooks(client: Client, id: str, as_json: bool) -> None:
    """Lists the webhook deliveries of a job."""
    deliveries = client.get(f"/jobs/{id}/webhooks")
    none = f"{id} has no deliveries: they begin when a job that has a webhook ends; "
    none += "`millrace submit --webhook URL` gives it one"
    show_list(deliveries, map(_line, deliveries["data"]), as_json, none)


@click.command(epilog="Example: millrace redeliver job_01kajf…")
@click.argument("id")
@client_command
def redeliver(client: Client, id: str, as_json: bool) -> None:
    """Sends a job's latest webhook again, under the same webhook-id."""
    delivery = client.request("POST", f"/jobs/{id}/webhooks/redeliver")
    show(delivery, _line(delivery), as_json)


@click.command(epilog="Example: millrace webhook-secret --rotate")
@click.option("--rotate", is_flag=True, help="Create a new one; the old one signs for 24 h more.")
@client_command
def webhook_secret(client: Client, rotate: bool, as_json: bool) -> None:
    """Shows the secret that verifies webhooks: once, when it is created."""
    secret = client.request("POST" if rotate else "GET", "/webhooks/secret")
    again = f"made {secret['created_at']}; it was shown before, --rotate makes a new one"
    show(secret, secret["secret"] or again, as_json)


@click.command(epilog="Example: millrace webhook-endpoint https://acme.example/usage")
@click.argument("endpoint", required=False)
@click.option("--none", "nowhere", is_flag=True, help="Remove the endpoint.")
@client_command
def webhook_endpoint(client: Client, endpoint: str | None, nowhere: bool, as_json: bool) -> None:
    """Shows or sets the endpoint that is notified near the soft cap."""
    if endpoint or nowhere:
        state = client.request("PUT", "/webhooks/endpoint", json={"url": endpoint})
    else:
        state = client.get("/webhooks/endpoint")
    url = state["url"] or "nowhere; `millrace webhook-endpoint URL` sets one"
    show(state, [url, *map(_line, state["deliveries"])], as_json)


def _line(delivery: dict[str, Any]) -> str:
    next_try = delivery["next_try_at"] and f"next try {delivery['next_try_at']}"
    notes = filter(None, (delivery["last_error"], next_try))
    tries = f"{delivery['state']} after {delivery['tries']} tries"
    return "  ".join([delivery["id"], delivery["type"], tries, *notes])
