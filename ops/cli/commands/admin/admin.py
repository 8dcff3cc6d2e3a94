"""Commands of who owns the database: the audit log, and the erasure of tenants."""

import json
from typing import Any

import click

from jobs.errors import MillraceError
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import audit as store
from jobs.store.tenants import erasure
from jobs.views.audit import entry_object
from jobs.views.tenants import erasure_object
from ops.cli.admin_database import everybodys, note
from ops.cli.commands.common import as_json_option


@click.command(epilog="Example: millrace audit --tenant acme --limit 100")
@click.option("--tenant", default=EVERYBODY, help="what was done to this one's things alone")
@click.option("--after", type=int, help="older than the entry of this id")
@click.option("--limit", default=50, show_default=True)
@as_json_option
def audit(tenant: str, after: int | None, limit: int, as_json: bool) -> None:
    """Shows who did what, the newest first: every admin act, and every verb."""
    with everybodys() as tx:
        found = [entry_object(row) for row in store.page(tx, tenant, after=after, limit=limit)]
    if as_json:
        click.echo(json.dumps({"data": found}))
        return
    for entry in found:
        words = (entry["at"], entry["tenant"], entry["actor"], entry["act"], entry["target"])
        click.echo("  ".join([str(entry["id"]), *words, json.dumps(entry["detail"])]))


@click.command(epilog="Example: millrace tenant-erase acme --yes")
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="without it nothing is done")
@as_json_option
def tenant_erase(tenant: str, yes: bool, as_json: bool) -> None:
    """Revokes a tenant's keys, and erases all that it has, for ever. Keepers do it; the same
    command again says how far they are. What it used stays on its bill."""
    if not yes:
        raise click.ClickException(f"this erases all of {tenant}, for ever; say --yes")
    with everybodys() as tx:
        try:
            erasure.begin(tx, tenant)
        except MillraceError as error:
            raise click.ClickException(error.detail) from None
        note(tx, "tenant.erase", tenant, tenant)
        found = erasure_object(tenant, erasure.remaining(tx, tenant))
    click.echo(json.dumps(found) if as_json else _line(found))


def _line(found: dict[str, Any]) -> str:
    if found["complete"]:
        return f"{found['tenant']}  erased"
    left = ", ".join(f"{count} {kind}" for kind, count in found["left"].items() if count)
    return f"{found['tenant']}  being erased; left: {left}"


COMMANDS = (audit, tenant_erase)
