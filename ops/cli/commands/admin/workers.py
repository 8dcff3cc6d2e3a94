"""Commands of operators: who works, and who is to rest."""

import json
from typing import Any

import click

from ops.cli.commands.common import client_command, connect
from ops.cli.commands.platform.processes import worker


@click.command(epilog="Example: millrace workers --json")
@client_command
def workers(url: str | None, as_json: bool) -> None:
    """Lists workers: those that live, and those that ended in the last hour."""
    found = connect(url).request("GET", "/workers")
    if as_json:
        click.echo(json.dumps(found))
        return
    for one in found["data"]:
        _show(one, False)


@worker.command(epilog="Example: millrace worker drain 12")
@click.argument("id", type=click.IntRange(1))
@client_command
def drain(id: int, url: str | None, as_json: bool) -> None:
    """Lets a worker take no more work; it lives on, and waits to be wanted again."""
    _show(connect(url).request("POST", f"/workers/{id}/drain"), as_json)


@worker.command(epilog="Example: millrace worker undrain 12")
@click.argument("id", type=click.IntRange(1))
@client_command
def undrain(id: int, url: str | None, as_json: bool) -> None:
    """Wants a drained worker again: it ends, and its supervisor starts the next one."""
    _show(connect(url).request("POST", f"/workers/{id}/undrain"), as_json)


def _show(worker: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(worker))
        return
    ended = worker["state"] in ("lost", "stopped")
    held = () if ended else worker["models"]
    models = ",".join(f"{one['model']}:{one['state']}" for one in held)
    notes = [worker["died"] or "", "drain asked" if worker["drain_asked"] else ""]
    told = (str(worker["id"]), worker["name"], worker["pool"], worker["device"], worker["state"])
    click.echo("  ".join(filter(None, (*told, *notes, models))))


COMMANDS = (workers,)
