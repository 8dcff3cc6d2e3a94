"""Commands on the database: tenants, their erasure, and the audit log."""

import json
from typing import Any

import click

from jobs import api_keys
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import audit as audit_store
from jobs.store.tenants import audit_chain, erasure
from jobs.store.tenants import tenants as store
from jobs.views.audit import entry_object
from jobs.views.tenants import erasure_object, tenant_object
from ops.cli.admin_database import admin_transaction, record
from ops.cli.commands.common import Number, Sha256, as_json_option, show, show_list

_MOST = 10_000
_WEIGHT, _CAP = (0.001, 1000.0), (0.0, 1e12)  # as the api takes them


@click.command(epilog="Example: millrace tenants")
@as_json_option
def tenants(as_json: bool) -> None:
    """Lists tenants."""
    with admin_transaction() as tx:
        page = [tenant_object(row) for row in store.page(tx, EVERYBODY, "", _MOST)]
    none = "no tenants yet; a key makes one: `millrace keys create --tenant NAME`"
    show_list({"data": page}, map(_line, page), as_json, none)


@click.command(epilog="Example: millrace tenant acme --weight 2")
@click.argument("tenant")
@click.option("--weight", type=Number(*_WEIGHT), help="Fair-share weight.")
@click.option(
    "--soft-cap", type=Number(*_CAP), help="Monthly spend at which its webhook is notified."
)
@click.option("--hard-cap", type=Number(*_CAP), help="Monthly spend at which its work is refused.")
@as_json_option
def tenant(tenant: str, as_json: bool, **terms: float | None) -> None:
    """Shows a tenant, after changing the given terms."""
    changes: dict[str, Any] = {name: value for name, value in terms.items() if value is not None}
    if changes and not api_keys.is_tenant(tenant):
        raise click.BadParameter("a name has 1 to 100 letters, digits and ._:@-")
    with admin_transaction() as tx:
        if changes:
            store.change(tx, tenant, **changes)
            record(tx, "tenant.change", tenant, tenant, **changes)
        row = tenant_object(store.get(tx, tenant))
    show(row, _line(row), as_json)


@click.command(epilog="Example: millrace tenant-erase acme --yes")
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Confirm; without it nothing is done.")
@as_json_option
def tenant_erase(tenant: str, yes: bool, as_json: bool) -> None:
    """Revokes a tenant's keys, and erases all its data for ever.

    Keepers do it; repeat the command to see their progress. Usage stays for billing.
    """
    if not yes:
        raise click.ClickException(f"this erases all of {tenant}, for ever; confirm with --yes")
    with admin_transaction() as tx:
        erasure.begin(tx, tenant)
        record(tx, "tenant.erase", tenant, tenant)
        progress = erasure_object(tenant, erasure.remaining(tx, tenant))
    left = ", ".join(f"{count} {kind}" for kind, count in progress["left"].items() if count)
    state = "erased" if progress["complete"] else f"being erased; left: {left}"
    show(progress, f"{tenant}  {state}", as_json)


@click.command(epilog="Example: millrace audit --verify --head 5b0c…")
@click.option("--tenant", default=EVERYBODY, help="Only entries on this tenant.")
@click.option("--after", type=int, help="Only entries older than the one of this id.")
@click.option("--limit", default=50, show_default=True, help="Number of entries.")
@click.option("--verify", is_flag=True, help="Check the hash chain of all entries instead.")
@click.option("--head", type=Sha256(), help="With --verify: the last hash of an earlier check.")
@as_json_option
def audit(
    tenant: str, after: int | None, limit: int, verify: bool, head: bytes | None, as_json: bool
) -> None:
    """Shows the audit log, newest first: admin acts, verbs, reads of others' payloads.

    --verify exits with 1 where an entry was changed, removed or inserted. Keep the last hash that
    it prints elsewhere: only a check with that --head shows that none was removed at the end, and
    that the chain wasn't written anew.
    """
    if head and not verify:
        raise click.UsageError("--head needs --verify")
    if verify:
        _verify(head or b"", as_json)
    else:
        _list(tenant, after, limit, as_json)


def _list(tenant: str, after: int | None, limit: int, as_json: bool) -> None:
    with admin_transaction() as tx:
        rows = audit_store.page(tx, tenant, after=after, limit=limit)
        entries = [entry_object(row) for row in rows]
    none = "no entries; what admins and operators do is written here"
    if tenant != EVERYBODY or after is not None:
        none = "no such entries; `millrace audit` shows all"
    show_list({"data": entries}, map(_entry_line, entries), as_json, none)


def _verify(head: bytes, as_json: bool) -> None:
    with admin_transaction() as tx:
        found = audit_chain.verify(tx, head)
    first, last = found.first.hex(), found.last.hex()
    lines = [f"{found.entries} entries follow one another"]
    lines += [f"first hash  {first}", f"last hash   {last}"] if first else []
    value = {"entries": found.entries, "first": first, "last": last, "problem": found.problem}
    show(value, lines, as_json)
    if found.problem:
        raise click.ClickException(f"the audit log: {found.problem}")


def _line(tenant: dict[str, Any]) -> str:
    caps = [f"{cap} {tenant[cap]:g}" for cap in ("soft_cap", "hard_cap") if tenant[cap] is not None]
    return "  ".join([tenant["tenant"], f"weight {tenant['weight']:g}", *caps])


def _entry_line(entry: dict[str, Any]) -> str:
    words = [str(entry["id"])]
    words += [entry[name] for name in ("at", "tenant", "actor", "act", "target")]
    return "  ".join([*words, json.dumps(entry["detail"])])
