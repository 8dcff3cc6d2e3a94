"""Rotation of MILLRACE_SECRET_KEY: its first key encrypts again what its older keys encrypted."""

from dataclasses import dataclass

from jobs.security.encryption import DecryptionError, decrypt_with, encrypt
from jobs.store.db import Tx
from jobs.store.webhooks import secrets

TENANTS_AT_ONCE = 100
"""Tenants whose secrets one transaction encrypts again; each has two at most."""


@dataclass(frozen=True, slots=True)
class Page:
    """Result of one transaction."""

    last_tenant: str  #: where the next page begins; empty: there is none
    read: int  #: secrets that were looked at
    encrypted: int  #: of those, encrypted again
    unreadable: tuple[str, ...]  #: tenants with a secret that signs, but that no key decrypts


def encrypt_again(tx: Tx, secret_key: str, after: str) -> Page:
    """Encrypts the secrets of the tenants that follow `after` by name with the first key.

    Those that it encrypted already stay as they are: whoever begins anew repeats nothing. Raises
    NotConfigured without a key.
    """
    tenants = secrets.tenants_after(tx, after, TENANTS_AT_ONCE)
    for tenant in tenants:
        secrets.lock(tx, tenant)  # in one order; who rotates or shows a secret holds one such lock
    rows, replaced, unreadable = secrets.of_tenants(tx, tenants), {}, []
    for row in rows:
        try:
            secret, position = decrypt_with(secret_key, row.tenant_id, row.sealed)
        except DecryptionError:
            if row.is_live:
                unreadable.append(row.tenant_id)
            continue
        if position:
            replaced[row.id] = encrypt(secret_key, row.tenant_id, secret)
    secrets.replace_sealed(tx, replaced)
    last = tenants[-1] if tenants else ""
    return Page(last, len(rows), len(replaced), tuple(dict.fromkeys(unreadable)))
