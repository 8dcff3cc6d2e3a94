"""Two tenants, and the tables that hold rows of tenants."""

from sqlalchemy import Engine, text

from jobs.store.db import Tx

ALICE, MALLORY = "alice", "mallory"
MARK = "alice-only"  # in everything that is Alice's
LEAVES = """
    SELECT c.relname FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE c.relkind = 'r'
"""
TENANTS_TABLES = f"""
    SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
      AND a.attname = 'tenant_id' AND c.relname NOT IN ({LEAVES})
    ORDER BY 1
"""


def rows_of(tx: Tx, table: str, tenant: str) -> list[str]:
    query = text(f"SELECT t::text FROM {table} t WHERE tenant_id = :tenant ORDER BY 1")
    return list(tx.scalars(query, {"tenant": tenant}))


def forget(database: Engine, tenant: str) -> None:
    """Deletes all rows of a tenant, whatever refers to them."""
    with database.begin() as tx:
        tables = tx.scalars(text(TENANTS_TABLES)).all()
        tx.execute(text("SET LOCAL session_replication_role = replica"))
        for table in tables:
            tx.execute(text(f"DELETE FROM {table} WHERE tenant_id = :tenant"), {"tenant": tenant})


def everything(database: Engine) -> dict[str, list[str]]:
    """All that is Alice's."""
    with database.connect() as tx:
        return {t: rows_of(tx, t, ALICE) for t in tx.scalars(text(TENANTS_TABLES)).all()}
