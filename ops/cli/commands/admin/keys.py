"""Commands on the database: API keys."""

from typing import Any, cast

import click

from jobs import api_keys, ids
from jobs.api_keys import NewKey
from jobs.identity import ROLES, SCOPES, Role, Scope
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import api_keys as store
from jobs.store.tenants.api_keys import KeyRow
from jobs.views.tenants import key_object
from ops.cli.admin_database import admin_transaction, record
from ops.cli.commands.common import Number, as_json_option, show, show_list

_MOST = 10_000
_DAY_S = 86_400.0


@click.group(epilog="Example: millrace keys create --tenant acme --role admin")
def keys() -> None:
    """Manages API keys on the database itself, before anything runs."""


@keys.command(epilog="Example: millrace keys create --tenant acme --json")
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
        row = store.create(tx, new)
        record(tx, "key.create", ids.show("key", row.id), tenant, role=role, scopes=row.scopes)
    _show_secret(row, new.secret, as_json)


@keys.command("list", epilog="Example: millrace keys list --tenant acme")
@click.option("--tenant", default=EVERYBODY, help="Only keys of this tenant.")
@as_json_option
def list_keys(tenant: str, as_json: bool) -> None:
    """Lists keys, the newest first."""
    with admin_transaction() as tx:
        page = [key_object(row) for row in store.page(tx, tenant, None, _MOST)]
    whose = "" if tenant == EVERYBODY else f" of {tenant}"
    none = f"no keys{whose}; make one: `millrace keys create --tenant NAME --role admin`"
    show_list({"data": page}, map(_line, page), as_json, none)


@keys.command(epilog="Example: millrace keys revoke key_01kajf…")
@click.argument("id")
@as_json_option
def revoke(id: str, as_json: bool) -> None:
    """Revokes a key, for ever and at once."""
    with admin_transaction() as tx:
        row = store.get(tx, EVERYBODY, ids.parse("key", id))
        store.revoke(tx, EVERYBODY, row.id)
        record(tx, "key.revoke", id, row.tenant_id)
    show({"id": id, "revoked": True}, f"{id}  revoked", as_json)


@keys.command(epilog="Example: millrace keys rotate key_01kajf… --overlap-s 3600")
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
        row, secret = store.rotate(tx, EVERYBODY, ids.parse("key", id), overlap_s)
        new = ids.show("key", row.id)
        record(tx, "key.rotate", id, row.tenant_id, replaced_by=new, overlap_s=overlap_s)
    _show_secret(row, secret, as_json)


def _scopes(text: str) -> frozenset[Scope] | None:
    named = frozenset(filter(None, (word.strip() for word in text.split(","))))
    if unknown := named - set(SCOPES):
        raise click.BadParameter(f"{', '.join(sorted(unknown))} is none of {', '.join(SCOPES)}")
    return cast(frozenset[Scope], named) or None


def _show_secret(row: KeyRow, secret: str, as_json: bool) -> None:
    key = key_object(row)
    show({"key": secret, **key}, secret, as_json)
    if not as_json:
        click.echo(f"{key['id']} of {key['tenant']}; it is shown this once", err=True)


def _line(key: dict[str, Any]) -> str:
    label = f"{key['hint']}… {key['name']}".strip()
    words = [key["id"], key["tenant"], key["role"], ",".join(key["scopes"]), label]
    if key["revoked_at"]:
        words.append(f"revoked {key['revoked_at']}")
    elif key["expires_at"]:
        words.append(f"until {key['expires_at']}")
    return "  ".join(words)
