"""Commands for cells: the router's configuration, and the move of a tenant."""

import json
from pathlib import Path
from typing import Any

import click

from jobs import api_keys
from jobs.store.tenants import moving
from ops.cli.admin_database import admin_transaction, record
from ops.cli.commands.common import JsonObject, as_json_option, show
from ops.router import nginx
from ops.router.cells import Cells

_FORMAT = 1  #: of an exported tenant


@click.command(epilog="Example: millrace router cells.toml > /etc/nginx/conf.d/millrace.conf")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--listen", default="127.0.0.1:8080", show_default=True, help="nginx's `listen`.")
def router(file: Path, listen: str) -> None:
    """Prints nginx's configuration that sends each tenant to its cell, as FILE declares them."""
    click.echo(nginx.configuration(Cells.load(file), listen), nl=False)


@click.command(epilog="Example: millrace tenant-export acme > acme.json")
@click.argument("tenant")
def tenant_export(tenant: str) -> None:
    """Prints a tenant's terms, keys (hashes), limits, signing secrets and Idempotency-Keys."""
    with admin_transaction() as tx:
        rows = moving.export_tenant(tx, tenant)
        record(tx, "tenant.export", tenant, tenant)
    click.echo(json.dumps({"format": _FORMAT, "tenant": tenant, "rows": rows}))


@click.command(epilog="Example: millrace tenant-import acme.json")
@click.argument("file", type=click.File())
@as_json_option
def tenant_import(file: Any, as_json: bool) -> None:
    """Stores an exported tenant here. May be repeated with a later export.

    Both cells need the same MILLRACE_SECRET_KEY, which encrypts its signing secrets.
    """
    exported = JsonObject().convert(file.read(), None, None)
    tenant = exported.get("tenant", "")
    if exported.get("format") != _FORMAT or not api_keys.is_tenant(tenant):
        raise click.ClickException("this is no tenant that `millrace tenant-export` printed")
    with admin_transaction() as tx:
        stored = moving.import_tenant(tx, tenant, exported.get("rows", {}))
        record(tx, "tenant.import", tenant, tenant, **stored)
    counts = ", ".join(f"{count} {kind}" for kind, count in stored.items() if count)
    show({"tenant": tenant, "stored": stored}, f"{tenant}  {counts}", as_json)
