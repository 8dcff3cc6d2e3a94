"""Prepared inputs in the database: slices pass on once all of theirs are there, and nobody writes
without a lease."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Engine, text

from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits, Model, PreparationModel
from jobs.models.registered import Registered
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.store import prepared
from jobs.store.jobs import deletion, read, verbs
from jobs.store.jobs.read import JobRow
from jobs.store.prepared import PreparedRow
from jobs.store.queue import claim, reap, settle
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Attempt, Result
from jobs.usecases.submit import Order, submit
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.transactions import execute, transact
from workers.keeper.rerouting import Rerouting

BASE = Model("minilm", "1", "minilm", prepare="pool", limits=Limits(slice_items=4))
STAGE = PreparationModel.create(BASE)
OTHER = SAMPLES.resolve("echo")
MODELS = Registry([BASE, OTHER])
POOL = "prepare"


def post(database: Engine, items: int = 4) -> Lease:
    """Submits a job; returns the lease of its only slice for its preparation."""
    submit(database, MODELS, "t", Order("minilm"), array=["a text"] * items)
    [lease] = claimed(database, STAGE)
    return lease


def claimed(database: Engine, model: Model, owner: int = 1) -> list[Lease]:
    return transact(database, claim.claim, owner, {model: 100}, 60, pool=model.pools[0])


def rows(lease: Lease, seqs: Sequence[int], place: str = "key") -> list[PreparedRow]:
    return [PreparedRow(lease.job_id, seq, lease.tenant, f"{place}{seq}", 1000) for seq in seqs]


def settled(
    database: Engine, lease: Lease, seqs: Sequence[int], results: Sequence[Result] = (),
    attempts: Sequence[Attempt] = (), place: str = "key",
) -> int:  # fmt: skip
    with database.begin() as tx:
        its, named = rows(lease, seqs, place), replace(lease, model=BASE.key)
        return prepared.settle(tx, [named], its, results, attempts, version="1", pool=POOL)


def places(database: Engine, lease: Lease) -> list[str]:
    """Inputs as a device worker reads them."""
    return [row[2] for row in transact(database, prepared.read_inputs, [lease], "1")]


def job_of(database: Engine, lease: Lease) -> JobRow:
    return transact(database, read.one, lease.tenant, lease.job_id)


def failed(lease: Lease, seq: int) -> Result:
    error = '{"code": "invalid_input", "message": "no picture"}'
    return Result(lease.job_id, lease.tenant, seq, "failed", 0, None, None, None, error)


def test_slices_are_claimed_by_those_who_prepare_and_then_by_devices(database: Engine) -> None:
    lease = post(database)
    assert lease.model == "minilm@1~prepare"
    assert not claimed(database, BASE, 2)
    assert settled(database, lease, range(4)) == 1
    assert not claimed(database, STAGE)
    [device] = claimed(database, BASE, 2)
    assert (device.model, device.start, device.stop) == ("minilm@1", 0, 4)
    assert places(database, device) == [f"#key{seq}" for seq in range(4)]


def test_models_that_prepare_themselves_go_on_as_before(database: Engine) -> None:
    submit(database, MODELS, "t", Order("echo"), array=["x"])
    [lease] = claimed(database, OTHER)
    assert lease.model == "echo@1"


def test_a_slice_stays_until_all_of_it_is_prepared_or_has_failed(database: Engine) -> None:
    lease = post(database)
    assert settled(database, lease, [0, 2], [failed(lease, 1)]) == 1
    [again] = claimed(database, STAGE)
    left = [row[1] for row in transact(database, prepared.read_unprepared, [again], "1")]
    assert left == [3]
    settled(database, again, [3])
    [device] = claimed(database, BASE, 2)
    assert [row[1] for row in transact(database, prepared.read_inputs, [device], "1")] == [0, 2, 3]


def test_what_failed_for_now_is_prepared_later(database: Engine) -> None:
    lease = post(database)
    away = Attempt(lease.job_id, "t", 3, 1, '{"code": "transient", "message": "away"}', None, 60.0)
    settled(database, lease, [0, 1, 2], attempts=[away])
    assert not claimed(database, STAGE)  # its next attempt is due in a minute
    assert not claimed(database, BASE)
    execute(database, "UPDATE attempts SET due_at = now(); UPDATE slices SET not_before = now()")
    [again] = claimed(database, STAGE)
    settled(database, again, [3])
    [device] = claimed(database, BASE, 2)
    assert len(places(database, device)) == 4


def test_a_job_all_of_whose_items_fail_in_preparation_ends(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, [], [failed(lease, seq) for seq in range(4)])
    assert job_of(database, lease).state == "completed"
    assert not claimed(database, BASE)


def test_one_that_lost_its_lease_writes_nothing(database: Engine) -> None:
    zombie = post(database)
    with database.begin() as tx:
        tx.execute(text("UPDATE slices SET lease_until = now() - interval '1 h'"))
        assert reap.reap(tx, 0.0) == 1
    [lease] = claimed(database, STAGE, 2)
    assert settled(database, zombie, range(4), [failed(zombie, 0)], place="zombie") == 0
    with database.begin() as tx:
        step = prepared.record
        assert step(tx, [zombie], rows(zombie, [0], "zombie"), [], [], version="1") == 0
    assert settled(database, lease, range(4)) == 1
    assert settled(database, zombie, range(4), place="zombie") == 0
    [device] = claimed(database, BASE, 3)
    assert places(database, device) == [f"#key{seq}" for seq in range(4)]


def test_what_was_recorded_before_a_worker_died_is_not_prepared_again(database: Engine) -> None:
    lease = post(database)
    with database.begin() as tx:
        prepared.record(tx, [lease], rows(lease, [0, 1]), [], [], version="1")
        tx.execute(text("UPDATE slices SET lease_until = now() - interval '1 h'"))
        reap.reap(tx, 0.0)
    [again] = claimed(database, STAGE, 2)
    assert [row[1] for row in transact(database, prepared.read_unprepared, [again], "1")] == [2, 3]


def test_prepared_inputs_of_another_version_do_not_count(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, range(4))
    [device] = claimed(database, BASE, 2)
    found = [row[2] for row in transact(database, prepared.read_inputs, [device], "2")]
    assert found == ['"a text"'] * 4


def test_a_suspect_that_is_prepared_is_none_for_the_device(database: Engine) -> None:
    lease = post(database)
    execute(database, "UPDATE slices SET suspect = true, deaths = 2")
    settled(database, lease, range(4))
    assert len(claimed(database, BASE, 2)) == 1


def test_paused_and_cancelled_jobs_are_so_while_they_are_prepared(database: Engine) -> None:
    lease = post(database)
    transact(database, verbs.pause, lease.job_id, "t")
    settled(database, lease, range(4))
    assert not claimed(database, BASE)
    transact(database, verbs.resume, lease.job_id, "t")
    assert len(claimed(database, BASE)) == 1
    other = post(database)
    transact(database, verbs.cancel, other.job_id, "t")
    settled(database, other, range(4))
    assert job_of(database, other).state == "cancelled"
    assert not claimed(database, BASE)


def test_preparation_is_charged_to_its_own_pool(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, range(4))
    with database.connect() as tx:
        query = text("SELECT pool, time_ms FROM turns WHERE tenant_id = 't'")
        charged = {row.pool: row.time_ms for row in tx.execute(query)}
    assert charged == {POOL: 4.0}  # a millisecond an item, whatever was expected


def test_items_ahead_are_counted_up_to_a_bound(database: Engine) -> None:
    for _ in range(3):
        settled(database, post(database), range(4))
    post(database)
    with database.connect() as tx:
        assert prepared.count_ahead(tx, BASE, 100) == 12
        assert prepared.count_ahead(tx, BASE, 2) == 8


def test_what_is_not_due_yet_is_not_ahead(database: Engine) -> None:
    settled(database, post(database), range(4))
    with database.begin() as tx:
        tx.execute(text("UPDATE slices SET not_before = now() + interval '1 h'"))
        assert prepared.count_ahead(tx, BASE, 100) == 0


def test_what_passes_on_is_ready_at_once_though_others_wait(database: Engine) -> None:
    lease, other = post(database), post(database)
    away = Attempt(other.job_id, "t", 3, 1, '{"code": "transient", "message": "away"}', None, 60.0)
    with database.begin() as tx:
        its = [*rows(lease, range(4)), *rows(other, [0, 1, 2])]
        named = [replace(one, model=BASE.key) for one in (lease, other)]
        prepared.settle(tx, named, its, [], [away], version="1", pool=POOL)
    [device] = claimed(database, BASE)
    assert (device.job_id, device.retrying) == (lease.job_id, False)
    assert not claimed(database, STAGE)


def rerouted(database: Engine, *models: Model) -> int:
    """Moves slices as a keeper does that knows of these models."""
    watched = ModelsFile(None)
    watched.declared = watched.models = Registry(models)
    watched.registered = Registered()
    return Rerouting(watched, database).run_once()


def test_jobs_go_on_once_their_model_prepares_by_itself(database: Engine) -> None:
    for _ in range(3):
        submit(database, MODELS, "t", Order("minilm"), array=["a text"] * 4)
    assert rerouted(database, BASE) == 0
    [leased, part, _] = claimed(database, STAGE)
    with database.begin() as tx:
        tx.execute(text("UPDATE slices SET state = 'ready' WHERE job_id <> :leased"),
                   {"leased": leased.job_id})  # fmt: skip
        tx.execute(text("UPDATE slices SET suspect = true WHERE job_id = :part"),
                   {"part": part.job_id})  # fmt: skip
    alone = replace(BASE, prepare="worker")
    assert rerouted(database, alone, OTHER) == 2, "all but the one that is leased"
    [device] = claimed(database, alone)
    assert places(database, device) == ['"a text"'] * 4
    assert len(transact(database, claim.claim_suspect, 1, alone, 60)) == 1
    settled(database, leased, [0, 2], [failed(leased, 1)])
    assert rerouted(database, alone) == 1, "though it has a result"
    assert len(claimed(database, alone)) == 1


def test_prepared_inputs_go_once_their_items_have_ended(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, range(3), [failed(lease, 3)])
    deleted: list[str] = []
    assert transact(database, prepared.forget, deleted.extend) == 0
    [device] = claimed(database, BASE, 2)
    done = replace(failed(device, 1), outcome="succeeded", error=None, output="1")
    with database.begin() as tx:
        settle.record(tx, [device], [done])
        assert prepared.forget(tx, deleted.extend) == 1
    assert deleted == ["key1"]


def test_a_deleted_job_has_none(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, range(4))
    transact(database, verbs.cancel, lease.job_id, "t")
    with database.begin() as tx:
        verbs.delete(tx, lease.job_id, "t")
        deletion.erase_rows(tx)
        assert tx.scalar(text("SELECT count(*) FROM prepared")) == 0


def test_the_invariants_hold_in_between(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, [0, 2], [failed(lease, 1)])
    assert broken_invariants(database) == set()
