"""Deleting a job: gone at once for its tenant, erased in bounded parts."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from sqlalchemy import Engine

from jobs.errors import Conflict, NotFound
from jobs.store.jobs import deletion, verbs
from jobs.usecases.cancel import cancel
from tests.support.stores.store import claim, count, post, result_chunks, settle
from tests.support.stores.transactions import execute, transact, waits_for_lock
from tests.support.wait import eventually

TABLES = ("items", "results", "results_archive", "attempts")


def erase(database: Engine) -> list[int]:
    """What each transaction erased."""
    steps = []
    while not steps or steps[-1]:
        steps.append(transact(database, deletion.erase_rows))
    return steps


def ended_job(database: Engine, items: int) -> UUID:
    id = post(database, *["x"] * items)
    settle(database, claim(database))
    cancel(database, id)
    return id


def test_an_open_job_is_not_deleted(database: Engine) -> None:
    id = post(database, "x")
    claim(database)
    for state in ("running", "cancelling"):
        with pytest.raises(Conflict, match=f"{state}; cancel it first"):
            transact(database, verbs.delete, id)
        cancel(database, id)


def test_a_deleted_job_is_gone_at_once_with_all_that_describes_it(database: Engine) -> None:
    id = ended_job(database, 1500)
    for row in (
        "INTO idempotency_keys VALUES ('default', 'k', '', :id, '{}')",
        "INTO webhook_deliveries (tenant_id, job_id, generation, url, type, about) "
        "VALUES ('default', :id, 1, 'https://x', 'job.completed', '{}')",
        "INTO job_labels VALUES (:id, 'k', 'v', 'default')",
    ):
        execute(database, f"INSERT {row}", {"id": id})
    transact(database, verbs.delete, id)
    for table in ("jobs", "job_labels", "slices", "idempotency_keys", "webhook_deliveries"):
        assert count(database, table) == 0
    assert count(database, "deletions", id) == 1
    with pytest.raises(NotFound):
        transact(database, verbs.delete, id)


def test_erasing_goes_in_bounded_steps_and_touches_no_other_job(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "_MOST_ITEMS", 800)
    gone, kept = ended_job(database, 2000), ended_job(database, 1200)
    transact(database, verbs.retry, gone)  # fills the archive
    cancel(database, gone)
    small = ended_job(database, 100)
    for id in (gone, small):
        transact(database, verbs.delete, id)
    assert erase(database) == [800, 800, 500, 0]
    for table in TABLES:
        assert count(database, table, gone) + count(database, table, small) == 0
    assert count(database, "items", kept) == count(database, "results", kept) == 1200


def test_payloads_go_after_the_rows_and_again_after_a_crash(database: Engine) -> None:
    def fail(id: UUID) -> None:
        raise OSError("the blob store is away")

    id = ended_job(database, 10)
    transact(database, verbs.delete, id)
    seen: list[UUID] = []
    assert transact(database, deletion.erase_payloads, seen.append) == 0
    erase(database)
    with pytest.raises(OSError, match="away"):
        transact(database, deletion.erase_payloads, fail)
    assert transact(database, deletion.erase_payloads, seen.append) == 1
    assert seen == [id]
    assert count(database, "deletions") == 0


def test_a_verb_that_waited_for_a_delete_finds_no_job(database: Engine) -> None:
    id = ended_job(database, 1)
    with ThreadPoolExecutor(1) as pool:
        with database.begin() as tx:
            verbs.delete(tx, id)
            retried = pool.submit(transact, database, verbs.retry, id)
            eventually(lambda: waits_for_lock(database))
        with pytest.raises(NotFound, match="the job was deleted meanwhile"):
            retried.result()


@pytest.mark.parametrize(
    "end", ["DELETE FROM jobs", "UPDATE jobs SET results_pruned = true"], ids=["delete", "prune"]
)
def test_a_reader_is_told_when_the_results_go_while_it_reads(database: Engine, end: str) -> None:
    chunks = result_chunks(database, ended_job(database, 1500))
    next(chunks)
    execute(database, end)
    with pytest.raises(Conflict):
        list(chunks)
