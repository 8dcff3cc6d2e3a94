"""What each step of a slice reads, where a large job lies among many small ones that have ended."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import ClauseElement

from jobs.store import db
from jobs.store.jobs import read, verbs
from jobs.store.queue import backlog, settle

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


def explained(tx: db.Tx, query: ClauseElement, values: Any) -> dict[str, Any]:
    """The plan of a statement, with what running it took."""
    compiled = query.compile(tx)
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {compiled}"
    [found] = tx.exec_driver_sql(explain, {**compiled.params, **values}).scalars().one()
    plan: dict[str, Any] = found["Plan"]
    return plan


def blocks(tx: db.Tx, query: ClauseElement, values: Any) -> int:
    """The pages that a statement looks at."""
    plan = explained(tx, query, values)
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_a_slice_is_postponed_at_a_cost_of_its_items(filled: db.Tx) -> None:
    values = {"jobs": [LARGE, LARGE], "starts": [0, 100]}
    assert blocks(filled, settle._POSTPONE, values) < 5000


def test_claimable_slices_are_counted_by_their_index(filled: db.Tx) -> None:
    assert blocks(filled, backlog._CLAIMABLE, ECHO | {"most": 300}) < 100


@pytest.fixture
def as_api(filled: db.Tx) -> Iterator[db.Tx]:
    """As the api acts: row-level security changes plans, and the owner knows nothing of it."""
    filled.exec_driver_sql("SET LOCAL ROLE millrace_api")
    filled.exec_driver_sql("SET LOCAL millrace.tenant = 't'")
    yield filled
    filled.exec_driver_sql("RESET ROLE")


ITS = {"tenant": "t", "job": LARGE}


@pytest.fixture
def without_statistics(filled: db.Tx, as_api: db.Tx) -> Iterator[db.Tx]:
    """As right after a submission, when nothing is known yet of what a table holds."""
    filled.exec_driver_sql("RESET ROLE")
    with filled.begin_nested() as forgetting:
        filled.exec_driver_sql("DELETE FROM pg_statistic")
        filled.exec_driver_sql("SET LOCAL ROLE millrace_api")
        yield as_api
        forgetting.rollback()


def looked_at(plan: dict[str, Any]) -> int:
    """Rows that a plan's nodes gave or threw away, those of its children included."""
    thrown = sum(n for key, n in plan.items() if key.startswith("Rows Removed"))
    own = int((plan["Actual Rows"] + thrown) * plan["Actual Loops"])
    return own + sum(looked_at(child) for child in plan.get("Plans", ()))


def test_the_first_gap_is_looked_for_one_seq_at_a_time(without_statistics: db.Tx) -> None:
    gap = ITS | {"since": 39_001, "stop": 39_100}
    assert looked_at(explained(without_statistics, read._FIRST_GAP, gap)) < 1000


def test_the_first_open_slice_is_found_by_its_index(as_api: db.Tx) -> None:
    assert blocks(as_api, read._OPEN_SLICE, ITS | {"after": 39_900}) < 100


def test_attempts_are_forgotten_at_their_own_cost(as_api: db.Tx) -> None:
    assert blocks(as_api, verbs._DELETE_ATTEMPTS, ITS) < 100
