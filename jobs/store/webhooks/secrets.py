"""Signing secrets of tenants, sealed: the current one, and the one before it while it rotates."""

from collections.abc import Sequence

from sqlalchemy import RowMapping, text

from jobs.store.db import Tx

_ONE_AT_A_TIME = text(
    "SELECT pg_advisory_xact_lock(hashtextextended('webhook secret of ' || :tenant, 0))"
)
_LIVE = text("""
    SELECT * FROM webhook_secrets
    WHERE tenant_id = :tenant AND (expires_at IS NULL OR expires_at > now()) ORDER BY id DESC
""")
_INSERT = text("""
    INSERT INTO webhook_secrets (tenant_id, sealed, shown_at)
    VALUES (:tenant, :sealed, CASE WHEN :shown THEN now() END)
""")
_SHOWN = text("UPDATE webhook_secrets SET shown_at = now() WHERE id = :id")
# Only the one before the newest lives on: whoever rotates twice means it.
_RETIRE = text("""
    WITH old AS (DELETE FROM webhook_secrets WHERE tenant_id = :tenant AND expires_at IS NOT NULL)
    UPDATE webhook_secrets SET expires_at = now() + make_interval(secs => :overlap_s)
    WHERE tenant_id = :tenant AND expires_at IS NULL
""")


def lock(tx: Tx, tenant: str) -> None:
    """Until the transaction ends, nobody else makes or rotates this tenant's secret."""
    tx.execute(_ONE_AT_A_TIME, {"tenant": tenant})


def active(tx: Tx, tenant: str) -> Sequence[RowMapping]:
    """Those that sign now, the newest first."""
    return tx.execute(_LIVE, {"tenant": tenant}).mappings().all()


def insert(tx: Tx, tenant: str, sealed: bytes, *, shown: bool) -> None:
    tx.execute(_INSERT, {"tenant": tenant, "sealed": sealed, "shown": shown})


def mark_shown(tx: Tx, id: int) -> None:
    tx.execute(_SHOWN, {"id": id})


def retire(tx: Tx, tenant: str, overlap_s: float) -> None:
    """The current one signs for so long beside the next; those before it no more."""
    tx.execute(_RETIRE, {"tenant": tenant, "overlap_s": overlap_s})
