"""Commands that list, drain and resume workers."""

import json
from typing import Any

import click

from ops.cli.commands.common import client_command, connect
from ops.cli.commands.platform.processes import worker


@click.command(epilog="Example: millrace workers --json")
@client_command
def workers(url: str | None, as_json: bool) -> None:
    """Lists workers that live, and those that ended in the last hour."""
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
    """Stops a worker from claiming; it stays alive until it is resumed."""
    _show(connect(url).request("POST", f"/workers/{id}/drain"), as_json)


@worker.command(epilog="Example: millrace worker resume 12")
@click.argument("id", type=click.IntRange(1))
@client_command
def resume(id: int, url: str | None, as_json: bool) -> None:
    """Ends the draining of a worker: it exits, and its supervisor starts another."""
    _show(connect(url).request("POST", f"/workers/{id}/undrain"), as_json)


def _show(worker: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(worker))
        return
    ended = worker["state"] in ("lost", "stopped")
    held = () if ended else worker["models"]
    models = ",".join(f"{one['model']}:{one['state']}" for one in held)
    notes = [worker["died"] or "", "drain asked" if worker["drain_asked"] else ""]
    words = (str(worker["id"]), worker["name"], worker["pool"], worker["device"], worker["state"])
    click.echo("  ".join(filter(None, (*words, *notes, models))))


COMMANDS = (workers,)
