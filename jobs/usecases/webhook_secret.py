"""A tenant's signing secret: made when it is first needed, shown once, rotated on demand."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jobs.security.encryption import DecryptionError, decrypt, encrypt
from jobs.store.db import Tx
from jobs.store.webhooks import secrets
from jobs.store.webhooks.secrets import SecretRow
from jobs.usecases import webhook_messages
from jobs.views import jobs

OVERLAP_S = 24 * 3600.0
"""Time for which a secret still signs together with its successor."""


def signing_secrets(tx: Tx, secret_key: str, tenant: str) -> list[str]:
    """Returns the secrets that sign this tenant's webhooks now, newest first; makes the first one.

    One before the current that no key decrypts is left out. Raises NotConfigured and
    DecryptionError, as the functions below do.
    """
    current, *before = secrets.active(tx, tenant) or _make(tx, secret_key, tenant)
    found = [decrypt(secret_key, tenant, current.sealed)]
    for row in before:
        with suppress(DecryptionError):
            found.append(decrypt(secret_key, tenant, row.sealed))
    return found


def show(tx: Tx, secret_key: str, tenant: str) -> dict[str, Any]:
    """Describes the current secret as JSON object; with the secret itself the first time."""
    secrets.lock(tx, tenant)
    row = (secrets.active(tx, tenant) or _make(tx, secret_key, tenant))[0]
    if row.shown_at is not None:
        return _object(tx, tenant, None)
    secret = decrypt(secret_key, tenant, row.sealed)
    secrets.mark_shown(tx, row.id)
    return _object(tx, tenant, secret)


def rotate(tx: Tx, secret_key: str, tenant: str) -> dict[str, Any]:
    """Makes a new secret, shown this once; the one before it goes on signing for OVERLAP_S."""
    secret = webhook_messages.new_secret()
    sealed = encrypt(secret_key, tenant, secret)
    secrets.lock(tx, tenant)
    secrets.retire(tx, tenant, OVERLAP_S)
    secrets.insert_secret(tx, tenant, sealed, shown=True)
    return _object(tx, tenant, secret)


def _make(tx: Tx, secret_key: str, tenant: str) -> Sequence[SecretRow]:
    sealed = encrypt(secret_key, tenant, webhook_messages.new_secret())
    secrets.lock(tx, tenant)
    if not secrets.active(tx, tenant):
        secrets.insert_secret(tx, tenant, sealed, shown=False)
    return secrets.active(tx, tenant)


def _object(tx: Tx, tenant: str, secret: str | None) -> dict[str, Any]:
    newest, *before = secrets.active(tx, tenant)
    return {
        "secret": secret,
        "created_at": jobs.timestamp(newest.created_at),
        "previous_signs_until": jobs.timestamp(before[0].expires_at) if before else None,
    }
