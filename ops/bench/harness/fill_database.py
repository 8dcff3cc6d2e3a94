"""Database that has been in use: 100,000 jobs of 20 tenants, 1,000,000 items, in two weeks.

SQL writes the rows that the platform itself would have written. Nobody serves the models, so that
open jobs stay open.
"""

from datetime import timedelta
from pathlib import Path

from sqlalchemy import Engine, text

from jobs import clock
from jobs.store import partitions
from jobs.store.db import disable_statement_timeout

DAYS = 14
TENANTS, MODELS = 20, 5

_SQL = Path(__file__).with_suffix(".sql")

_WORDS = {
    "failed": "(CASE WHEN n % 13 = 0 THEN least(total, 3) ELSE 0 END)",
    "half": "state IN ('cancelled', 'expired')",
    "open_done": "(CASE WHEN state = 'running' AND total > 20 THEN 20 ELSE 0 END)",
    "tenants": TENANTS,
    "models": MODELS,
    "seconds": DAYS * 86_400,
}


def fill(database: Engine, jobs: int) -> None:
    """Writes so many jobs, with ten items each on average, and all that belongs to them."""
    now = clock.now()
    with database.begin() as tx:  # partitions of the past
        partitions.ensure(tx, now - timedelta(days=DAYS))
    with database.begin() as tx:
        disable_statement_timeout(tx)
        statements = _SQL.read_text().format(jobs=jobs, **_WORDS).rstrip().removesuffix(";")
        for statement in statements.split(";\n"):
            tx.execute(text(statement), {"now": now})
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM (ANALYZE)"))
