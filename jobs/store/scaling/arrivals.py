"""Work that the calls of a pool brought, by bins of five minutes."""

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as upsert

from jobs.scaling.forecast import BIN_S, DAYS, Arrivals
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.scaling_tables import pool_arrivals as table

_KEPT_BINS = (DAYS + 1) * 86_400 // BIN_S


def add(tx: Tx, pool: str, at_s: float, work: float) -> None:
    """Adds a sample of the work, in replicas. at_s: Unix time."""
    new = upsert(table).values(pool=pool, bin=int(at_s // BIN_S), work=work)
    added = {"work": table.c.work + new.excluded.work, "samples": table.c.samples + 1}
    tx.execute(new.on_conflict_do_update(index_elements=["pool", "bin"], set_=added))


def read(tx: Tx, pool: str) -> Arrivals:
    """Returns the mean work of each bin that counts."""
    query = select(table.c.bin, table.c.work / table.c.samples).where(table.c.pool == pool)
    return Arrivals(queries.pairs(tx, query))


def pools(tx: Tx) -> list[str]:
    """Returns the pools that have any."""
    return list(tx.scalars(select(table.c.pool).distinct().order_by(table.c.pool)))


def delete_old(tx: Tx, pool: str, at_s: float) -> None:
    """Deletes bins that no forecast reads any more."""
    before = int(at_s // BIN_S) - _KEPT_BINS
    tx.execute(delete(table).where(table.c.pool == pool, table.c.bin < before))
