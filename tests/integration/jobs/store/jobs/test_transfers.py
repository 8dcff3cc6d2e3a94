"""Jobs on their way in and out, as the store has them."""

from typing import Any
from uuid import UUID

import orjson
import pytest
from sqlalchemy import Engine, text

from jobs.errors import Conflict
from jobs.intake.idempotency_key import Claim
from jobs.models.builtin_models import SAMPLES
from jobs.store import db
from jobs.store.jobs import deletion, idempotency, retention, transfers, verbs
from jobs.store.queue import finish
from jobs.store.tenancy import acting
from jobs.store.tenants import erasure
from jobs.usecases.submit import Order, submit, submit_source
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import claim, count, job, settle
from tests.support.stores.transactions import execute, scalars, transact

S3 = {"url": "s3://here/in.jsonl"}
HOOK = "https://hooks.example/"


def coming(database: Engine, model: str = "echo", tenant: str = "default", **more: Any) -> UUID:
    order = Order(model, webhook_url=HOOK)
    found: UUID = submit_source(database, SAMPLES, tenant, order, S3, **more).id
    return found


def test_a_job_whose_items_are_to_be_read_has_its_labels(database: Engine) -> None:
    order = Order("echo", name="nightly", labels={"team": "search", "stage": "prod"})
    row = submit_source(database, SAMPLES, "default", order, S3)
    assert (row.name, row.labels) == ("nightly", '{"team":"search","stage":"prod"}')
    assert count(database, "job_labels") == 2


def going(database: Engine, *items: str) -> UUID:
    """A job with results that are to be written; it has ended."""
    order = Order("echo", webhook_url=HOOK)
    array = list(items or ("x",))
    id: UUID = submit(database, SAMPLES, "default", order, array=array, target=S3).id
    settle(database, claim(database))
    return id


def rows(database: Engine) -> list[Any]:
    with database.connect() as tx:
        return list(tx.execute(text("SELECT * FROM transfers ORDER BY job_id")).mappings())


def take(database: Engine, lease_s: float = 60) -> transfers.Transfer:
    found = transact(database, transfers.claim, lease_s)
    assert found is not None
    return found


def nothing_is_due(database: Engine) -> bool:
    return transact(database, transfers.claim, 60) is None


def write(database: Engine, mine: transfers.Transfer, manifest: dict[str, Any]) -> bool:
    with database.begin() as tx:
        if ours := transfers.finish(tx, mine):
            transfers.set_manifest(tx, mine, manifest)
        return ours


@pytest.fixture(autouse=True)
def _sound(database: Engine) -> Any:
    yield
    assert broken_invariants(database) == set()


def test_a_job_with_a_source_is_validated_by_transfer(database: Engine, database_url: str) -> None:
    engine = db.connect(database_url, pool_size=1, role=db.API)
    held = Claim("default", "key", b"same")
    id = coming(engine, dialect="native", asked={"x": 1}, target=S3, claim=held)
    engine.dispose()
    found = job(database, id)
    assert (found.state, found.total) == ("validating", 0)
    assert found.source == '{"url":"s3://here/in.jsonl"}'
    assert found.asked == '{"on_invalid":"reject","x":1}'
    [row] = rows(database)
    assert (row["job_id"], row["kind"], row["epoch"]) == (id, "import", 0)
    with acting(database, "default") as tx:
        kept = idempotency.find(tx, held)
    assert kept is not None
    assert kept.job_id == id
    assert '"state":"validating"' in kept.answer


def test_a_job_may_learn_its_model_from_its_lines(database: Engine) -> None:
    found = job(database, coming(database, model=""))
    assert (found.model, found.version) == ("", "")


def test_a_sweep_leaves_alone_what_is_validating(database: Engine) -> None:
    id = coming(database)
    assert transact(database, finish.MissedJobs().close) == 0
    assert job(database, id).finished_at is None


# -- claims


def test_a_claim_is_one_keepers_until_its_lease_ends(database: Engine) -> None:
    coming(database)
    first = take(database, lease_s=60)
    assert nothing_is_due(database)
    execute(database, "UPDATE transfers SET due_at = now()")
    second = take(database)
    assert (second.epoch, second.deaths, second.kills) == (first.epoch + 1, 0, 2)
    with database.begin() as tx:
        assert not transfers.renew(tx, first, 60)
        assert transfers.renew(tx, second, 60)
        assert not transfers.finish(tx, first)
    transact(database, transfers.postpone, first, 0, "of a stale one")
    assert rows(database)[0]["last_error"] is None
    transact(database, transfers.release, second)


def test_what_is_postponed_says_why_and_forgets_who_died(database: Engine) -> None:
    id = coming(database)
    transact(database, transfers.postpone, take(database), 60, "throttled")
    assert nothing_is_due(database)
    assert (rows(database)[0]["deaths"], rows(database)[0]["tries"]) == (0, 1)
    assert job(database, id).transfer_error == "throttled"


def test_what_is_given_back_is_untried(database: Engine) -> None:
    coming(database)
    transact(database, transfers.release, take(database))
    again = take(database)
    assert (again.tries, again.deaths, again.kills) == (1, 0, 1)


def test_a_tenant_with_something_in_hand_waits_for_one_that_has_nothing(database: Engine) -> None:
    for _ in range(3):
        coming(database, tenant="many")
    coming(database, tenant="one")
    assert [take(database).tenant for _ in range(4)] == ["many", "one", "many", "many"]


# -- verbs on a job that is still to be read


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_a_job_that_is_still_to_be_read_ends_at_once(database: Engine, end: str) -> None:
    id = coming(database)
    mine = take(database)
    with database.begin() as tx:
        verbs.cancel(tx, id) if end == "cancelled" else verbs.expire(tx, id)
    assert job(database, id).state == end
    told = scalars(database, "SELECT type FROM webhook_deliveries")
    assert told == [f"job.{end}"]
    with database.begin() as tx:
        assert not transfers.renew(tx, mine, 60)
        assert not transfers.finish(tx, mine)
        assert verbs.expired(tx) == []
    transact(database, verbs.delete, id)
    assert count(database, "transfers") == 0


def test_a_job_that_is_still_to_be_read_is_not_paused(database: Engine) -> None:
    id = coming(database)
    with pytest.raises(Conflict, match="still being read"), database.begin() as tx:
        verbs.pause(tx, id)


def test_what_never_was_read_is_read_again_by_retry(database: Engine) -> None:
    id = coming(database)
    first = take(database)
    with database.begin() as tx:
        assert transfers.finish(tx, first)
        finish.close_unread(tx, id, "failed", '{"code": "x", "message": "y"}')
    assert job(database, id).state == "failed"
    assert transact(database, verbs.retry, id) == "failed"
    found = job(database, id)
    assert (found.state, found.generation, found.error) == ("validating", 2, None)
    second = take(database)
    assert (second.generation, second.epoch) == (2, first.epoch)
    assert not transact(database, transfers.finish, first)  # of the same epoch


# -- exports


def test_the_webhook_waits_for_what_is_written(database: Engine) -> None:
    id = going(database, "a", "b")
    assert job(database, id).state == "completed"
    assert count(database, "webhook_deliveries") == 0
    assert write(database, take(database), {"parts": []})
    [about] = scalars(database, "SELECT about FROM webhook_deliveries")
    assert orjson.loads(about["manifest"]) == {"parts": []}
    assert count(database, "transfers") == 0


def test_a_job_that_is_cancelled_is_written_too(database: Engine) -> None:
    order = Order("echo", webhook_url=HOOK)
    submit(database, SAMPLES, "default", order, array=["x"], target=S3)
    transact(database, verbs.cancel, rows_of_jobs(database)[0])
    assert (take(database).kind, count(database, "webhook_deliveries")) == ("export", 0)


def rows_of_jobs(database: Engine) -> list[UUID]:
    return scalars(database, "SELECT id FROM jobs")


def test_a_retry_makes_what_is_being_written_stale(database: Engine) -> None:
    order = Order("echo")
    id: UUID = submit(database, SAMPLES, "default", order, array=["x"], target=S3).id
    transact(database, verbs.cancel, id)
    first = take(database)
    transact(database, verbs.retry, id)
    assert not write(database, first, {"parts": ["stale"]})
    settle(database, claim(database))
    second = take(database)
    assert (second.generation, second.epoch) == (2, first.epoch)
    assert not write(database, first, {"parts": ["stale"]})
    assert write(database, second, {"parts": []})
    assert job(database, id).manifest == '{"parts":[]}'


def test_what_could_not_be_written_is_written_again_by_retry(database: Engine) -> None:
    id = going(database)
    write(database, take(database), {"error": {"code": "access_denied", "message": "…"}})
    transact(database, verbs.retry, id)
    found = job(database, id)
    assert (found.state, found.generation, found.manifest) == ("completed", 2, None)
    assert write(database, take(database), {"parts": []})
    assert count(database, "webhook_deliveries") == 2
    transact(database, verbs.retry, id)
    assert job(database, id).generation == 2


def test_a_tenant_that_leaves_takes_its_transfers_along(database: Engine) -> None:
    coming(database)
    going(database)
    transact(database, erasure.begin, "default")
    for _ in range(50):
        with database.begin() as tx:
            if not erasure.continue_erasing(tx):
                break
    assert (count(database, "jobs"), count(database, "transfers")) == (0, 0)
    with database.begin() as tx:
        while deletion.erase_rows(tx):
            pass


@pytest.mark.parametrize("kind", ["items", "results"])
def test_what_was_pruned_is_neither_read_nor_written_again(
    database: Engine, kind: retention.Kind
) -> None:
    unread, written = coming(database), going(database)
    transact(database, verbs.cancel, unread)
    write(database, take(database), {"error": {"code": "x", "message": "y"}})
    with database.begin() as tx:
        tx.execute(text("UPDATE jobs SET finished_at = now() - interval '9 days'"))
        tx.execute(text(f"UPDATE jobs SET {kind}_pruned = true"))
    with pytest.raises(Conflict, match="submit it anew"), database.begin() as tx:
        verbs.retry(tx, unread)
    transact(database, verbs.retry, written)
    again = job(database, written).generation
    assert again == (2 if kind == "items" else 1)
    if again == 2:
        assert write(database, take(database), {"parts": []})
