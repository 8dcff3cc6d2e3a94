"""Commands on the database: API keys and tenants."""

import json
from functools import partial
from typing import Any, cast

import click

from jobs import api_keys, ids
from jobs.api_keys import NewKey
from jobs.errors import MillraceError
from jobs.identity import ROLES, SCOPES, Role, Scope
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import api_keys as key_store
from jobs.store.tenants import tenants as tenant_store
from jobs.store.tenants.api_keys import KeyRow
from jobs.views.tenants import key_object, tenant_object
from ops.cli.admin_database import admin_transaction, record
from ops.cli.commands.common import Number, as_json_option

_MOST = 10_000
_DAY_S = 86_400.0
_WEIGHT, _CAP = (0.001, 1000.0), (0.0, 1e12)  # as the api takes them


@click.group("keys", epilog="Example: millrace keys create --tenant acme --role admin")
def all_keys() -> None:
    """Manages API keys on the database itself, before anything runs."""


@all_keys.command(epilog="Example: millrace keys create --tenant acme --json")
@click.option("--tenant", required=True, help="Tenant of the key.")
@click.option("--name", default="", help="Name for people.")
@click.option("--role", type=click.Choice(list(ROLES)), default="tenant", show_default=True,
              help="Role.")  # fmt: skip
@click.option("--scopes", default="", help=f"Some of {','.join(SCOPES)}; default: all of the role.")
@click.option(
    "--expires-in-days", type=Number(0, 3650, min_open=True), help="Lifetime; default: for ever."
)
@as_json_option
def create(
    tenant: str, name: str, role: str, scopes: str, expires_in_days: float | None, as_json: bool
) -> None:
    """Creates a key, and shows it this once."""
    ttl_s = None if expires_in_days is None else expires_in_days * _DAY_S
    new = NewKey(tenant, name, cast(Role, role), _scopes(scopes), ttl_s)
    with admin_transaction() as tx:
        row = _checked(key_store.create, tx, new)
        record(tx, "key.create", ids.show("key", row.id), tenant, role=role, scopes=row.scopes)
    _show_made(row, new.secret, as_json)


@all_keys.command("list", epilog="Example: millrace keys list --tenant acme")
@click.option("--tenant", default=EVERYBODY, help="Only keys of this tenant.")
@as_json_option
def list_keys(tenant: str, as_json: bool) -> None:
    """Lists keys, the newest first."""
    with admin_transaction() as tx:
        found = [key_object(row) for row in key_store.page(tx, tenant, None, _MOST)]
    if as_json:
        click.echo(json.dumps({"data": found}))
        return
    for key in found:
        scopes = ",".join(key["scopes"])
        label = f"{key['hint']}… {key['name']}".strip()
        click.echo(f"{key['id']}  {key['tenant']}  {key['role']}  {scopes}  {label}{_end(key)}")


@all_keys.command(epilog="Example: millrace keys revoke key_01kajf…")
@click.argument("id")
@as_json_option
def revoke(id: str, as_json: bool) -> None:
    """Revokes a key, for ever and at once."""
    with admin_transaction() as tx:
        row = _checked(key_store.get, tx, EVERYBODY, ids.parse("key", id))
        key_store.revoke(tx, EVERYBODY, row.id)
        record(tx, "key.revoke", id, row.tenant_id)
    click.echo(json.dumps({"id": id, "revoked": True}) if as_json else f"{id}  revoked")


@all_keys.command(epilog="Example: millrace keys rotate key_01kajf… --overlap-s 3600")
@click.argument("id")
@click.option(
    "--overlap-s",
    type=Number(0, api_keys.MAX_OVERLAP_S),
    default=api_keys.OVERLAP_S,
    show_default=True,
    help="Time for which the old key stays valid.",
)
@as_json_option
def rotate(id: str, overlap_s: float, as_json: bool) -> None:
    """Replaces a key by a new one with the same rights, and shows it this once."""
    with admin_transaction() as tx:
        row, secret = _checked(key_store.rotate, tx, EVERYBODY, ids.parse("key", id), overlap_s)
        new = ids.show("key", row.id)
        record(tx, "key.rotate", id, row.tenant_id, replaced_by=new, overlap_s=overlap_s)
    _show_made(row, secret, as_json)


@click.command(epilog="Example: millrace tenants")
@as_json_option
def tenants(as_json: bool) -> None:
    """Lists tenants."""
    with admin_transaction() as tx:
        found = [tenant_object(row) for row in tenant_store.page(tx, EVERYBODY, "", _MOST)]
    if as_json:
        click.echo(json.dumps({"data": found}))
        return
    for one in found:
        _show_tenant(one, False)


@click.command(epilog="Example: millrace tenant acme --weight 2")
@click.argument("tenant")
@click.option("--weight", type=Number(*_WEIGHT), help="Fair-share weight.")
@click.option(
    "--soft-cap", type=Number(*_CAP), help="Monthly spend at which its webhook is notified."
)
@click.option("--hard-cap", type=Number(*_CAP), help="Monthly spend at which its work is refused.")
@as_json_option
def tenant(tenant: str, as_json: bool, **changes: float | None) -> None:
    """Shows a tenant, after changing the given terms."""
    given = {name: value for name, value in changes.items() if value is not None}
    with admin_transaction() as tx:
        if given and not api_keys.is_tenant(tenant):
            raise click.BadParameter("a name has 1 to 100 letters, digits and ._:@-")
        if given:
            _checked(partial(tenant_store.change, tx, tenant, **given))
            record(tx, "tenant.change", tenant, tenant, **given)
        row = _checked(tenant_store.get, tx, tenant)
    _show_tenant(tenant_object(row), as_json)


def _checked(act: Any, *arguments: Any) -> Any:
    try:
        return act(*arguments)
    except MillraceError as error:
        raise click.ClickException(error.detail) from None


def _scopes(text: str) -> frozenset[Scope] | None:
    named = frozenset(filter(None, (word.strip() for word in text.split(","))))
    if unknown := named - set(SCOPES):
        raise click.BadParameter(f"{', '.join(sorted(unknown))} is none of {', '.join(SCOPES)}")
    return cast(frozenset[Scope], named) or None


def _show_made(row: KeyRow, secret: str, as_json: bool) -> None:
    key = key_object(row)
    if as_json:
        click.echo(json.dumps({"key": secret, **key}))
        return
    click.echo(secret)
    click.echo(f"{key['id']} of {key['tenant']}; it is shown this once", err=True)


def _end(key: dict[str, Any]) -> str:
    if key["revoked_at"]:
        return f"  revoked {key['revoked_at']}"
    return f"  until {key['expires_at']}" if key["expires_at"] else ""


def _show_tenant(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found))
        return
    caps = [
        f"{name} {found[name]:g}" for name in ("soft_cap", "hard_cap") if found[name] is not None
    ]
    click.echo("  ".join([found["tenant"], f"weight {found['weight']:g}", *caps]))


COMMANDS = (all_keys, tenants, tenant)
