"""Retention and deletion: what is too old or deleted goes, in parts, nothing else does."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from jobs import ids
from jobs.errors import Conflict, NotFound
from jobs.settings import Settings
from jobs.store import partitions
from jobs.store.conversations import items, rows
from jobs.store.jobs import deletion, read, responses, retention, verbs
from jobs.store.jobs.responses import NewResponse
from jobs.store.jobs.retention import Kind
from jobs.store.queue import workers
from jobs.usecases.cancel import cancel
from tests.support.stores.store import at, claim, count, ended, job, post, result_chunks, settle
from tests.support.stores.transactions import execute, scalars, transact, waits_for_lock
from tests.support.wait import eventually
from workers.keeper.cleanup import duties

MONDAY = datetime(2024, 3, 4, tzinfo=UTC)
DAY = timedelta(days=1)
WEEK = timedelta(weeks=1)

REDIS = "redis://127.0.0.1:1"  # nothing is asked of it


def old_job(database: Engine, when: datetime, *items: object) -> UUID:
    """A job that was submitted and ended then; its last slice was cancelled."""
    with at(when, database):
        id = post(database, *(items or ("x", "y")))
    settle(database, claim(database))
    cancel(database, id)
    ended(database, id, when)
    return id


def mark(database: Engine, before: datetime, *kinds: Kind) -> int:
    asked: tuple[Kind, ...] = kinds or ("items", "results")
    return sum(transact(database, retention.mark_pruned, before, kind) for kind in asked)


def drop(database: Engine, before: datetime, kind: Kind = "items") -> int:
    return transact(database, retention.drop_week, before, kind)


def strays(database: Engine, before: datetime, kind: Kind = "items") -> int:
    return transact(database, retention.delete_strays, before, kind)


def tables(database: Engine) -> set[str]:
    return set(scalars(database, "SELECT relname FROM pg_class WHERE relname ~ '_2024'"))


def test_a_week_goes_once_all_its_jobs_are_pruned(database: Engine) -> None:
    old, young = old_job(database, MONDAY), old_job(database, MONDAY + 2 * DAY)
    later = old_job(database, MONDAY + WEEK)
    assert mark(database, MONDAY + DAY, "items") == 1
    assert drop(database, MONDAY + WEEK) == 0
    assert count(database, "items") == 6
    assert mark(database, MONDAY + 3 * DAY, "items") == 1
    assert drop(database, MONDAY + 3 * DAY) == 0  # the week is not over
    assert drop(database, MONDAY + WEEK) == 1
    assert drop(database, MONDAY + WEEK) == 0
    assert "items_20240304" not in tables(database)
    assert {"items_20240311", "results_20240304"} <= tables(database)
    assert [count(database, "items", id) for id in (old, young, later)] == [0, 0, 2]
    assert count(database, "results") == 6


def test_results_go_with_attempts_and_payloads_once_items_are_pruned_too(database: Engine) -> None:
    id = old_job(database, MONDAY)
    mark(database, MONDAY + DAY, "results")
    assert [drop(database, MONDAY + WEEK, "results") for _ in range(3)] == [1, 1, 0]
    assert not {"results_20240304", "attempts_20240304"} & tables(database)
    assert (count(database, "items"), count(database, "deletions")) == (2, 0)
    mark(database, MONDAY + DAY, "items")
    assert count(database, "deletions", id) == 1


def test_an_open_job_keeps_its_week_and_is_never_pruned(database: Engine) -> None:
    old_job(database, MONDAY)
    with at(MONDAY, database):
        id = post(database, "x")
    assert mark(database, MONDAY + 5 * WEEK) == 2
    assert drop(database, MONDAY + WEEK) == 0
    assert not job(database, id).items_pruned


def test_rows_beside_a_job_that_goes_on_are_deleted_in_parts(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_MOST_ITEMS", 3)
    with at(MONDAY, database):
        open_job = post(database, *"abc", priority=-1)
    gone = [old_job(database, MONDAY, *"wxyz") for _ in range(2)]
    mark(database, MONDAY + WEEK)
    assert strays(database, MONDAY + WEEK) == 0  # a drop may still do it
    steps = []
    while not steps or steps[-1]:
        steps.append(strays(database, MONDAY + 2 * WEEK))
    assert sum(steps) == 8
    assert max(steps) <= 3
    assert [count(database, "items", id) for id in (*gone, open_job)] == [0, 0, 3]


@pytest.mark.parametrize("kind", ["items", "results"])
def test_pruned_rows_in_the_default_partition_are_deleted(database: Engine, kind: Kind) -> None:
    old, kept = old_job(database, MONDAY), old_job(database, MONDAY + WEEK)
    with database.begin() as tx:
        for table in ("items", "results", "attempts"):
            for monday in ("20240304", "20240311"):
                name = f"{table}_{monday}"
                tx.execute(text(f"ALTER TABLE {table} DETACH PARTITION {name}"))
                tx.execute(text(f"INSERT INTO {table} SELECT * FROM {name}"))
    assert count(database, f"{kind}_rest") == 4
    mark(database, MONDAY + DAY)
    assert strays(database, MONDAY + DAY, kind) == 2
    assert strays(database, MONDAY + DAY, kind) == 0
    assert (count(database, kind, old), count(database, kind, kept)) == (0, 2)


def test_the_archive_of_pruned_generations_is_deleted(database: Engine) -> None:
    with at(MONDAY, database):
        id = post(database, "x")
    for _ in range(2):
        cancel(database, id)
        transact(database, verbs.retry, id)
    settle(database, claim(database))
    ended(database, id, MONDAY)
    assert count(database, "results_archive", id) == 2
    mark(database, MONDAY + DAY)
    while strays(database, MONDAY + DAY, "results"):
        pass
    assert count(database, "results_archive", id) == 0


def test_a_drop_waits_for_nobody_and_comes_again(database: Engine) -> None:
    old_job(database, MONDAY)
    mark(database, MONDAY + DAY)
    with database.begin() as other:
        other.execute(text("LOCK TABLE items IN ROW EXCLUSIVE MODE"))  # as a COPY does
        with pytest.raises(OperationalError, match="lock timeout"):
            drop(database, MONDAY + WEEK)
        assert count(database, "items") == 2
    assert drop(database, MONDAY + WEEK) == 1


def test_results_outlive_their_items_but_for_the_custom_ids_and_retries(database: Engine) -> None:
    lines = [{"custom_id": "a", "input": "x"}, *["x"] * 1500]
    id = old_job(database, MONDAY, *lines)
    mark(database, MONDAY + DAY, "items")
    with pytest.raises(Conflict, match="submit it anew"):
        transact(database, verbs.retry, id)
    drop(database, MONDAY + WEEK)
    line = next(result_chunks(database, id)).splitlines()[0]
    assert b'"custom_id":null,"outcome":"succeeded","output":"x"' in line


def test_a_job_is_forgotten_last_with_all_that_describes_it(database: Engine) -> None:
    old, young = old_job(database, MONDAY), old_job(database, MONDAY + WEEK)
    assert transact(database, retention.delete_jobs, MONDAY + DAY) == 0  # with its payloads
    mark(database, MONDAY + DAY)
    assert transact(database, retention.delete_jobs, MONDAY + DAY) == 1
    assert (count(database, "jobs", old), count(database, "slices", old)) == (0, 0)
    assert (count(database, "jobs", young), count(database, "slices", young)) == (1, 1)
    assert drop(database, MONDAY + WEEK) == 1


def test_old_launches_go_and_workers_that_left_none(database: Engine) -> None:
    with database.begin() as tx:
        gone, alive = (workers.register(tx, "w", "p", "cpu", ["echo@1"]) for _ in range(2))
        launched = [(gone, 1, MONDAY), (gone, 2, MONDAY), (alive, 1, MONDAY)]
        rows = [
            workers.LaunchRow(who << 32 | n, who, "echo", "1", 1, "full", 1, 0, 1, 1, 1, 1, at)
            for who, n, at in [*launched, (alive, 2, MONDAY + WEEK)]
        ]
        workers.insert_launches(tx, rows)
    lost = "UPDATE workers SET state = 'lost', heartbeat_at = :at WHERE incarnation = :gone"
    execute(database, lost, {"at": MONDAY, "gone": gone})
    assert transact(database, retention.delete_launches, MONDAY + DAY) == 3
    assert scalars(database, "SELECT id FROM launches") == [alive << 32 | 2]
    assert scalars(database, "SELECT incarnation FROM workers") == [alive]


def test_partitions_are_made_around_a_week_that_lies_in_the_default_one(database: Engine) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.clock.now", lambda: MONDAY)
        post(database, "x")
    made = transact(database, partitions.ensure, MONDAY)
    assert "items_20240304" not in made
    assert {"results_20240304", "items_20240311", "items_20240401"} <= set(made)


def test_nothing_is_removed_by_age_unless_it_is_asked(database: Engine) -> None:
    assert ", ".join(duty.name for duty in duties(Settings(redis_url=REDIS))) == (
        "erase rows, erase payloads, forget prepared, erase tenants, expire files, "
        "expire responses, expire conversations, erase traces, forget figures, mark artifacts, "
        "erase artifacts"
    )


def test_the_keeper_takes_everything_away_at_its_age(database: Engine) -> None:
    now = datetime.now(UTC)
    old, young = old_job(database, now - 60 * DAY), old_job(database, now - DAY)
    before = scalars(database, "SELECT relname FROM pg_class WHERE relname ~ '^items_2'")
    settings = Settings(redis_url=REDIS, keep_items_days=2, keep_results_days=3, keep_jobs_days=30)
    for duty in [*duties(settings), *duties(settings)]:
        while transact(database, duty.step):
            pass
    for table in ("jobs", "slices", "items", "results"):
        assert count(database, table, old) == 0
        assert count(database, table, young) > 0
    after = scalars(database, "SELECT relname FROM pg_class WHERE relname ~ '^items_2'")
    assert len(after) < len(before)
    assert count(database, "deletions") == 0


def test_an_expired_response_goes_with_its_job(database: Engine, keeper: Engine) -> None:
    job = post(database, "x")
    settle(database, claim(database))
    live, gone = ids.new(), ids.new()
    with database.begin() as tx:
        for id, ended, keep_days in ((job, None, -1), (gone, b"{}", -1), (live, b"{}", 1)):
            new = NewResponse(id, "default", None, b"{}", b"[]", ended)
            responses.store(tx, new, keep_days)
        assert responses.get(tx, "default", gone) is None
        assert responses.chain(tx, "default", job) == []
    assert transact(keeper, responses.delete_expired) == 2
    assert transact(database, read.get, "default", job) is None
    assert transact(database, responses.get, "default", live) is not None


def test_an_expired_conversation_goes_with_its_items(database: Engine, keeper: Engine) -> None:
    live, gone = ids.new(), ids.new()
    with database.begin() as tx:
        for id, keep_days in ((live, 1), (gone, -1)):
            row = rows.create(tx, "default", id, b"{}", keep_days)
            items.append(tx, row, {"msg_1": b'"x"'}, keep_days)
            items.add_turn(tx, "default", id, ids.new())
    assert transact(keeper, rows.delete_expired) == 1
    assert transact(database, rows.get, "default", live) is not None
    for table in ("conversation_items", "conversation_turns"):
        left = scalars(database, f"SELECT conversation_id FROM {table}")
        assert live in left
        assert gone not in left


# -- deleting a job: gone at once for its tenant, erased in bounded parts

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
    for table in ("jobs", "job_labels", "slices", "webhook_deliveries"):
        assert count(database, table) == 0
    assert scalars(database, "SELECT answer FROM idempotency_keys WHERE key = 'k'") == [""]
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
