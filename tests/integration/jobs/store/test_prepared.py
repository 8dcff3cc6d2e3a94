"""Prepared inputs in the database: slices pass on once all of theirs are there, and nobody writes
without a lease."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy import Engine

from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits, Model, PreparationModel
from jobs.models.registered import Registered
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.store import prepared
from jobs.store.jobs import deletion, read, verbs
from jobs.store.prepared import PreparedRow
from jobs.store.queue import claim, reap, settle
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Attempt, Result
from jobs.usecases.submit import Order, submit
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import count, lapse, results
from tests.support.stores.transactions import execute, fetch, transact
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
    database: Engine, lease: Lease, seqs: Sequence[int], failed: Sequence[int] = (),
    attempts: Sequence[Attempt] = (), place: str = "key",
) -> int:  # fmt: skip
    """Settles a slice with what was prepared and what failed in that."""
    results, named = failures(lease, *failed), replace(lease, model=BASE.key)
    its = rows(lease, seqs, place)
    return transact(
        database, prepared.settle, [named], its, results, attempts, version="1", pool=POOL
    )


def failures(lease: Lease, *seqs: int) -> list[Result]:
    return results(lease, *seqs, outcome="failed") if seqs else []


def state(database: Engine, lease: Lease) -> str:
    return transact(database, read.one, lease.tenant, lease.job_id).state


def inputs(database: Engine, lease: Lease, version: str = "1") -> dict[int, str]:
    """Inputs as a device worker reads them, by seq."""
    found = transact(database, prepared.read_inputs, [lease], version)
    return {row[1]: row[2] for row in found}


def unprepared(database: Engine, lease: Lease) -> list[int]:
    return [row[1] for row in transact(database, prepared.read_unprepared, [lease], "1")]


def away(lease: Lease) -> Attempt:
    error = '{"code": "transient", "message": "away"}'
    return Attempt(lease.job_id, "t", 3, 1, error, None, 60.0)


WHOLE = {seq: f"#key{seq}" for seq in range(4)}


def test_slices_are_claimed_by_those_who_prepare_and_then_by_devices(database: Engine) -> None:
    lease = post(database)
    assert lease.model == "minilm@1~prepare"
    assert not claimed(database, BASE, 2)
    assert settled(database, lease, range(4)) == 1
    assert not claimed(database, STAGE)
    [device] = claimed(database, BASE, 2)
    assert (device.model, device.start, device.stop) == ("minilm@1", 0, 4)
    assert inputs(database, device) == WHOLE
    assert list(inputs(database, device, version="2").values()) == ['"a text"'] * 4


def test_preparation_is_charged_to_its_own_pool(database: Engine) -> None:
    settled(database, post(database), range(4))
    charged = fetch(database, "SELECT pool, time_ms FROM turns WHERE tenant_id = 't'")
    assert charged == [(POOL, 4.0)]  # a millisecond an item, whatever was expected


def test_models_that_prepare_themselves_go_on_as_before(database: Engine) -> None:
    submit(database, MODELS, "t", Order("echo"), array=["x"])
    [lease] = claimed(database, OTHER)
    assert lease.model == "echo@1"


def test_a_slice_stays_until_all_of_it_is_prepared_or_has_failed(database: Engine) -> None:
    lease = post(database)
    assert settled(database, lease, [0, 2], failed=[1]) == 1
    assert broken_invariants(database) == set()
    [again] = claimed(database, STAGE)
    assert unprepared(database, again) == [3]
    settled(database, again, [3])
    [device] = claimed(database, BASE, 2)
    assert list(inputs(database, device)) == [0, 2, 3]


def test_what_failed_for_now_is_prepared_later(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, [0, 1, 2], attempts=[away(lease)])
    assert not claimed(database, STAGE)  # its next attempt is due in a minute
    assert not claimed(database, BASE)
    execute(database, "UPDATE attempts SET due_at = now(); UPDATE slices SET not_before = now()")
    [again] = claimed(database, STAGE)
    settled(database, again, [3])
    [device] = claimed(database, BASE, 2)
    assert len(inputs(database, device)) == 4


def test_a_job_all_of_whose_items_fail_in_preparation_ends(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, [], failed=range(4))
    assert state(database, lease) == "completed"
    assert not claimed(database, BASE)


def test_one_that_lost_its_lease_writes_nothing_more(database: Engine) -> None:
    zombie = post(database)
    step = partial(transact, database, prepared.record, [zombie])
    assert step(rows(zombie, [0, 1]), [], [], version="1") == 1
    lapse(database)
    assert transact(database, reap.reap, 0.0) == 1
    [lease] = claimed(database, STAGE, 2)
    assert unprepared(database, lease) == [2, 3], "what was recorded is not prepared again"
    assert settled(database, zombie, range(4), failed=[0], place="zombie") == 0
    assert step(rows(zombie, [2], "zombie"), [], [], version="1") == 0
    assert settled(database, lease, range(4)) == 1
    assert settled(database, zombie, range(4), place="zombie") == 0
    [device] = claimed(database, BASE, 3)
    assert inputs(database, device) == WHOLE


def test_a_suspect_that_is_prepared_is_none_for_the_device(database: Engine) -> None:
    lease = post(database)
    execute(database, "UPDATE slices SET suspect = true, deaths = 2")
    settled(database, lease, range(4))
    assert len(claimed(database, BASE, 2)) == 1


def test_paused_and_cancelled_jobs_are_so_while_they_are_prepared(database: Engine) -> None:
    paused = post(database)
    transact(database, verbs.pause, paused.job_id, "t")
    settled(database, paused, range(4))
    assert not claimed(database, BASE)
    transact(database, verbs.resume, paused.job_id, "t")
    assert len(claimed(database, BASE)) == 1
    cancelled = post(database)
    transact(database, verbs.cancel, cancelled.job_id, "t")
    settled(database, cancelled, range(4))
    assert state(database, cancelled) == "cancelled"
    assert not claimed(database, BASE)


def test_a_deleted_job_has_none(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, range(4))
    transact(database, verbs.cancel, lease.job_id, "t")
    transact(database, verbs.delete, lease.job_id, "t")
    transact(database, deletion.erase_rows)
    assert count(database, "prepared") == 0


def test_items_ahead_that_are_due_are_counted_up_to_a_bound(database: Engine) -> None:
    for _ in range(3):
        settled(database, post(database), range(4))
    post(database)
    assert transact(database, prepared.count_ahead, BASE, 100) == 12
    assert transact(database, prepared.count_ahead, BASE, 2) == 8
    execute(database, "UPDATE slices SET not_before = now() + interval '1 h'")
    assert transact(database, prepared.count_ahead, BASE, 100) == 0


def test_what_passes_on_is_ready_at_once_though_others_wait(database: Engine) -> None:
    lease, other = post(database), post(database)
    its = [*rows(lease, range(4)), *rows(other, [0, 1, 2])]
    named = [replace(one, model=BASE.key) for one in (lease, other)]
    transact(database, prepared.settle, named, its, [], [away(other)], version="1", pool=POOL)
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
    execute(database, f"UPDATE slices SET state = 'ready' WHERE job_id <> '{leased.job_id}'")
    execute(database, f"UPDATE slices SET suspect = true WHERE job_id = '{part.job_id}'")
    alone = replace(BASE, prepare="worker")
    assert rerouted(database, alone, OTHER) == 2, "all but the one that is leased"
    [device] = claimed(database, alone)
    assert list(inputs(database, device).values()) == ['"a text"'] * 4
    assert len(transact(database, claim.claim_suspect, 1, alone, 60)) == 1
    settled(database, leased, [0, 2], failed=[1])
    assert rerouted(database, alone) == 1, "though it has a result"
    assert len(claimed(database, alone)) == 1


def test_prepared_inputs_go_once_their_items_have_ended(database: Engine) -> None:
    lease = post(database)
    settled(database, lease, range(3), failed=[3])
    deleted: list[str] = []
    assert transact(database, prepared.forget, deleted.extend) == 0
    [device] = claimed(database, BASE, 2)
    transact(database, settle.record, [device], results(device, 1))
    assert transact(database, prepared.forget, deleted.extend) == 1
    assert deleted == ["key1"]
