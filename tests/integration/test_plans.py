"""What each step of a slice reads, where a large job lies among many small ones that have ended."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import TextClause, text

from jobs.store import db, settling, waiting

LARGE = UUID("01900000-0000-7000-9000-000000000001")
ECHO = {"models": ["echo"], "versions": ["1"]}
_FILL = """
    INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                      custom_ids, total, finished_at)
    SELECT CAST('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), 't', 'echo', '1',
           'standard', 0, 'completed', '{}', '{}', false, 1,
           CASE WHEN n <= 20000 THEN now() END FROM generate_series(1, 40000) n;
    INSERT INTO slices (job_id, start, stop, tenant_id, model, version, priority, state)
    SELECT id, 0, 1, 't', 'echo', '1', 0, CASE WHEN finished_at IS NULL THEN 'ready' ELSE 'done' END
    FROM jobs;
    INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                      custom_ids, total)
    VALUES ('LARGE', 't', 'echo', '1', 'standard', 0, 'queued', '{}', '{}', false, 40000);
    INSERT INTO slices (job_id, start, stop, tenant_id, model, version, priority)
    SELECT 'LARGE', n * 100, n * 100 + 100, 't', 'echo', '1', 0 FROM generate_series(0, 399) n;
    INSERT INTO items (job_id, tenant_id, seq, input)
    SELECT 'LARGE', 't', n, '"x"' FROM generate_series(0, 39999) n;
    INSERT INTO results (job_id, tenant_id, seq, outcome, attempts, units)
    SELECT id, 't', 0, 'succeeded', 1, 1 FROM jobs WHERE finished_at IS NOT NULL;
    INSERT INTO results (job_id, tenant_id, seq, outcome, attempts, units)
    SELECT 'LARGE', 't', n, 'succeeded', 1, 1 FROM generate_series(0, 39999, 2) n;
""".replace("LARGE", str(LARGE))


@pytest.fixture(scope="module")
def filled(migrated: str) -> Iterator[db.Tx]:
    """The database that the others are copied from; what is written here is taken back."""
    engine = db.connect(migrated, pool_size=1)
    with engine.connect() as tx:
        tx.exec_driver_sql(_FILL)
        tx.exec_driver_sql("ANALYZE jobs, slices, items, results")
        yield tx
        tx.rollback()
    engine.dispose()


def blocks(tx: db.Tx, query: TextClause, values: Any) -> int:
    """The pages that a statement looks at."""
    explain = text("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query.text)
    [plan] = tx.scalars(explain, values).one()
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


def test_a_slice_is_postponed_at_a_cost_of_its_items(filled: db.Tx) -> None:
    values = {"jobs": [LARGE, LARGE], "starts": [0, 100]}
    assert blocks(filled, settling._POSTPONE, values) < 5000


def test_claimable_slices_are_counted_by_their_index(filled: db.Tx) -> None:
    assert blocks(filled, waiting._CLAIMABLE, ECHO | {"most": 300}) < 100
