"""What each step of a slice reads, where a large job lies among many small ones that have ended."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from jobs.models.builtin_models import SAMPLES
from jobs.store import db
from jobs.store.jobs import read, search, verbs
from jobs.store.jobs.search import Filter
from jobs.store.queue import backlog, settle
from jobs.store.queue.claim import claim
from jobs.store.queue.finish import MissedJobs
from jobs.store.queue.settle import Attempt
from tests.support.cases import each
from tests.support.stores import plans
from tests.support.stores.transactions import connected

LARGE = UUID("01900000-0000-7000-9000-000000000001")
ECHO = SAMPLES.resolve("echo")
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
    INSERT INTO job_labels (job_id, tenant_id, key, value)
    SELECT id, 't', key, value FROM jobs, LATERAL (VALUES ('team', 'search'),
        ('run', right(id::text, 3))) l (key, value)
    WHERE total = 1;
    INSERT INTO results (job_id, tenant_id, seq, outcome, attempts, units)
    SELECT id, 't', 0, 'succeeded', 1, 1 FROM jobs WHERE finished_at IS NOT NULL;
    INSERT INTO results (job_id, tenant_id, seq, outcome, attempts, units)
    SELECT 'LARGE', 't', n, 'succeeded', 1, 1 FROM generate_series(0, 39999, 2) n;
""".replace("LARGE", str(LARGE))


@pytest.fixture(scope="module")
def filled(migrated: str) -> Iterator[db.Tx]:
    """The database that the others are copied from; what is written here is taken back."""
    with connected(migrated) as engine, engine.connect() as tx:
        tx.exec_driver_sql(_FILL)
        tx.exec_driver_sql("ANALYZE jobs, job_labels, slices, items, results")
        yield tx
        tx.rollback()


def explained(tx: db.Tx, words: str, act: Callable[[], object]) -> plans.Plan:
    """The plan of the one statement with these words; what act does is taken back."""
    with tx.begin_nested() as done:
        [plan] = plans.explained(tx, act, words)
        done.rollback()
    return plan


def blocks(tx: db.Tx, words: str, act: Callable[[], object]) -> int:
    return plans.blocks([explained(tx, words, act)])


def test_a_slice_is_postponed_at_a_cost_of_its_items(filled: db.Tx) -> None:
    def postpone() -> None:
        first = f"UPDATE slices SET priority = 9 WHERE job_id = '{LARGE}' AND start < 200"
        filled.exec_driver_sql(first)
        leases = [lease for lease in claim(filled, 1, {ECHO: 200}, 60) if lease.job_id == LARGE]
        assert [lease.start for lease in leases] == [0, 100]
        failed = [Attempt(LARGE, "t", lease.start + 1, 1, "{}", None, 0.0) for lease in leases]
        settle.settle(filled, leases, [], failed)

    assert blocks(filled, "SET retrying = true", postpone) < 5000


def test_claimable_slices_are_counted_by_their_index(filled: db.Tx) -> None:
    def count() -> None:
        assert backlog.claimable(filled, [ECHO], 300) == {"echo@1": 300}

    assert looked_at(explained(filled, "AS counted", count)) < 2000


@pytest.fixture
def as_api(filled: db.Tx) -> Iterator[db.Tx]:
    """As the api acts: row-level security changes plans, and the owner knows nothing of it."""
    filled.exec_driver_sql("SET LOCAL ROLE millrace_api")
    filled.exec_driver_sql("SET LOCAL millrace.tenant = 't'")
    yield filled
    filled.exec_driver_sql("RESET ROLE")


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


def read_after(tx: db.Tx, after: int) -> None:
    read.span(tx, "t", LARGE, 40_000, after=after, gaps=False, outcome=None, limit=None)


def test_the_first_gap_is_looked_for_one_seq_at_a_time(without_statistics: db.Tx) -> None:
    tx = without_statistics
    assert looked_at(explained(tx, "min(g.seq)", lambda: read_after(tx, 39_000))) < 1000


def test_the_first_open_slice_is_found_by_its_index(as_api: db.Tx) -> None:
    plan = explained(as_api, "ORDER BY slices.start", lambda: read_after(as_api, 39_900))
    assert looked_at(plan) < 500  # rows, since pages hold what tests before have taken back


def test_attempts_are_forgotten_at_their_own_cost(filled: db.Tx, as_api: db.Tx) -> None:
    def retry() -> None:
        filled.exec_driver_sql("RESET ROLE")
        filled.exec_driver_sql(f"UPDATE jobs SET state = 'failed' WHERE id = '{LARGE}'")
        filled.exec_driver_sql(f"UPDATE slices SET n_failed = 1 WHERE job_id = '{LARGE}'")
        filled.exec_driver_sql("SET LOCAL ROLE millrace_api")
        verbs.retry(as_api, LARGE, "t")

    assert blocks(as_api, "DELETE FROM attempts", retry) < 100


def test_a_model_with_open_slices_is_found_by_their_index(filled: db.Tx) -> None:
    def look() -> None:
        assert backlog.unfinished(filled, [ECHO, SAMPLES.resolve("minilm")]) == {"echo@1"}

    assert blocks(filled, "AS wanted", look) < 100


def test_missed_ends_of_jobs_are_looked_for_some_at_a_time(filled: db.Tx) -> None:
    look = MissedJobs(100)
    assert blocks(filled, "WITH looked_at", lambda: look.close(filled)) < 1000


RARE, COMMON = ("run", "0ab"), ("team", "search")


def look_for(tx: db.Tx, *labels: tuple[str, str], after: UUID | None = None) -> int:
    """The pages of tables and indexes that a page of jobs with these labels looks at."""

    def look() -> None:
        rows = search.page(tx, "t", Filter(labels=labels), after=after, limit=5)
        assert len(rows) == 5

    return blocks(tx, "job_labels", look)


def test_jobs_are_found_by_their_labels_a_page_at_the_cost_of_a_page(as_api: db.Tx) -> None:
    middle = UUID(f"01900000-0000-7000-8000-{20000:012x}")
    for after in (None, middle):
        for labels in ((RARE,), (COMMON,), (RARE, COMMON)):
            assert look_for(as_api, *labels, after=after) < 200, (after, labels)


def test_so_they_are_while_nothing_is_known_of_the_tables(without_statistics: db.Tx) -> None:
    assert look_for(without_statistics, RARE) < 200


_FORGET = "DELETE FROM pg_statistic; UPDATE pg_class SET reltuples = -1 WHERE relkind = 'r'"
# Many jobs of one item each, and then a large one: as of it, one row is expected.
_SMALL_JOBS_ALONE = f"""
    CREATE TEMP TABLE kept_items AS SELECT * FROM items WHERE job_id = '{LARGE}';
    CREATE TEMP TABLE kept_results AS SELECT * FROM results WHERE job_id = '{LARGE}';
    DELETE FROM items WHERE job_id = '{LARGE}';
    DELETE FROM results WHERE job_id = '{LARGE}';
    INSERT INTO items (job_id, tenant_id, seq, input)
    SELECT id, 't', 0, '"x"' FROM jobs WHERE total = 1;
    ANALYZE items, results, slices;
    INSERT INTO items SELECT * FROM kept_items;
    INSERT INTO results SELECT * FROM kept_results;
"""


@pytest.mark.parametrize("before", [_FORGET, _SMALL_JOBS_ALONE], ids=["none", "of others"])
def test_a_chunk_of_new_results_is_read_at_the_cost_of_its_rows(filled: db.Tx, before: str) -> None:
    values = {"job": LARGE, "tenant": "t", "unit": "u", "outcome": "succeeded"}
    chunk = {"after": 29_999, "until": 30_999}
    with filled.begin_nested() as forgotten:
        filled.exec_driver_sql(before)
        filled.exec_driver_sql("SET LOCAL ROLE millrace_api")
        filled.exec_driver_sql("SET LOCAL millrace.tenant = 't'")
        for kind, case in each(read.LINE_QUERIES):
            query = partial(filled.execute, read.LINE_QUERIES[kind], values | chunk)
            with case:
                assert looked_at(explained(filled, "AS lines", query)) < 12 * 500
        forgotten.rollback()
