"""Jobs on their way in and out, as the store has them."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import orjson
import pytest
from sqlalchemy import Engine

from jobs.errors import Conflict
from jobs.intake.idempotency_key import Claim
from jobs.models.builtin_models import SAMPLES
from jobs.store.db import Tx
from jobs.store.jobs import deletion, idempotency, retention, transfers, verbs
from jobs.store.queue import finish
from jobs.store.tenants import erasure
from jobs.usecases.submit import Order, submit, submit_source
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import claim, count, job, settle
from tests.support.stores.transactions import execute, fetch, scalars, transact

S3 = {"url": "s3://here/in.jsonl"}
HOOK = "https://hooks.example/"


def coming(database: Engine, model: str = "echo", tenant: str = "default", **more: Any) -> UUID:
    order = Order(model, webhook_url=HOOK)
    found: UUID = submit_source(database, SAMPLES, tenant, order, S3, **more).id
    return found


def to_write(database: Engine, *items: str) -> UUID:
    """A job with results that are to be written."""
    order = Order("echo", webhook_url=HOOK)
    array = list(items or ("x",))
    id: UUID = submit(database, SAMPLES, "default", order, array=array, target=S3).id
    return id


def going(database: Engine, *items: str) -> UUID:
    """The same; it has ended."""
    id = to_write(database, *items)
    settle(database, claim(database))
    return id


def ask(database: Engine) -> transfers.Transfer | None:
    return transact(database, transfers.claim, 60)


def row_of(database: Engine) -> Any:
    [row] = fetch(database, "SELECT * FROM transfers")
    return row


def take(database: Engine) -> transfers.Transfer:
    found = ask(database)
    assert found is not None
    return found


def write(database: Engine, mine: transfers.Transfer, manifest: dict[str, Any]) -> bool:
    with database.begin() as tx:
        if ours := transfers.finish(tx, mine):
            transfers.set_manifest(tx, mine, manifest)
        return ours


@pytest.fixture(autouse=True)
def _sound(database: Engine) -> Any:
    yield
    assert broken_invariants(database) == set()


def test_a_job_with_a_source_is_validated_by_transfer(database: Engine, api: Engine) -> None:
    held = Claim("default", "key", b"same")
    id = coming(api, dialect="native", asked={"x": 1}, target=S3, claim=held)
    found = job(database, id)
    assert (found.state, found.total) == ("validating", 0)
    assert found.source == '{"url":"s3://here/in.jsonl"}'
    assert found.asked == '{"on_invalid":"reject","x":1}'
    row = row_of(database)
    assert (row.job_id, row.kind, row.epoch) == (id, "import", 0)
    kept = transact(database, idempotency.find, held)
    assert kept is not None
    assert kept.job_id == id
    assert '"state":"validating"' in kept.answer


def test_a_job_whose_items_are_to_be_read_has_its_labels(database: Engine) -> None:
    order = Order("echo", name="nightly", labels={"team": "search", "stage": "prod"})
    row = submit_source(database, SAMPLES, "default", order, S3)
    assert (row.name, row.labels) == ("nightly", '{"team":"search","stage":"prod"}')
    assert count(database, "job_labels") == 2


def test_a_job_that_learns_its_model_from_its_lines_is_left_by_a_sweep(database: Engine) -> None:
    id = coming(database, model="")
    assert (job(database, id).model, job(database, id).version) == ("", "")
    assert transact(database, finish.MissedJobs().close) == 0
    assert job(database, id).finished_at is None


# -- claims


def test_a_claim_is_one_keepers_until_its_lease_ends(database: Engine) -> None:
    coming(database)
    first = take(database)
    assert ask(database) is None
    execute(database, "UPDATE transfers SET due_at = now()")
    second = take(database)
    assert (second.epoch, second.deaths, second.kills) == (first.epoch + 1, 0, 2)
    with database.begin() as tx:
        assert not transfers.renew(tx, first, 60)
        assert transfers.renew(tx, second, 60)
        assert not transfers.finish(tx, first)
    transact(database, transfers.postpone, first, 0, "of a stale one")
    assert row_of(database).last_error is None
    transact(database, transfers.release, second)


def test_what_is_given_back_is_untried_and_what_is_postponed_says_why(database: Engine) -> None:
    id = coming(database)
    transact(database, transfers.release, take(database))
    again = take(database)
    assert (again.tries, again.deaths, again.kills) == (1, 0, 1)
    transact(database, transfers.postpone, again, 60, "throttled")
    assert ask(database) is None
    assert (row_of(database).deaths, row_of(database).tries) == (0, 1)
    assert job(database, id).transfer_error == "throttled"


def test_a_tenant_with_something_in_hand_waits_for_one_that_has_nothing(database: Engine) -> None:
    for _ in range(3):
        coming(database, tenant="many")
    coming(database, tenant="one")
    assert [take(database).tenant for _ in range(4)] == ["many", "one", "many", "many"]


# -- verbs on a job that is still to be read


@pytest.mark.parametrize(("verb", "end"), [(verbs.cancel, "cancelled"), (verbs.expire, "expired")])
def test_a_job_that_is_still_to_be_read_ends_at_once(
    database: Engine, verb: Callable[[Tx, UUID], object], end: str
) -> None:
    id = coming(database)
    mine = take(database)
    transact(database, verb, id)
    assert job(database, id).state == end
    assert scalars(database, "SELECT type FROM webhook_deliveries") == [f"job.{end}"]
    with database.begin() as tx:
        assert not transfers.renew(tx, mine, 60)
        assert not transfers.finish(tx, mine)
        assert verbs.expired(tx) == []
    transact(database, verbs.delete, id)
    assert count(database, "transfers") == 0


def test_a_job_that_is_still_to_be_read_is_not_paused(database: Engine) -> None:
    with pytest.raises(Conflict, match="still being read"):
        transact(database, verbs.pause, coming(database))


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


def test_a_cancelled_job_is_written_too_and_a_retry_makes_that_stale(database: Engine) -> None:
    id = to_write(database)
    transact(database, verbs.cancel, id)
    first = take(database)
    assert (first.kind, count(database, "webhook_deliveries")) == ("export", 0)
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
    while transact(database, erasure.continue_erasing):
        pass
    assert (count(database, "jobs"), count(database, "transfers")) == (0, 0)
    while transact(database, deletion.erase_rows):
        pass


@pytest.mark.parametrize("kind", ["items", "results"])
def test_what_was_pruned_is_never_read_or_written(database: Engine, kind: retention.Kind) -> None:
    unread, written = coming(database), going(database)
    transact(database, verbs.cancel, unread)
    write(database, take(database), {"error": {"code": "x", "message": "y"}})
    ago = "finished_at = now() - interval '9 days'"
    execute(database, f"UPDATE jobs SET {ago}, {kind}_pruned = true")
    with pytest.raises(Conflict, match="submit it anew"):
        transact(database, verbs.retry, unread)
    transact(database, verbs.retry, written)
    again = job(database, written).generation
    assert again == (2 if kind == "items" else 1)
    if again == 2:
        assert write(database, take(database), {"parts": []})
