"""Lost leases: who is free, who is suspect, and how the guilty item ends up alone."""

from collections.abc import Callable
from math import log2
from typing import Any
from uuid import UUID

import orjson
import pytest
from sqlalchemy import Engine, extract, func, select, text

from jobs import clock
from jobs.store import db
from jobs.store.jobs import detail, verbs
from jobs.store.queue import backlog, clock_watch, workers
from jobs.store.queue import claim as claims
from jobs.store.queue import reap as reaping
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease
from jobs.store.queue.clock_watch import ClockWatch
from jobs.store.queue.reap import DEATHS_ALONE
from jobs.store.queue.settle import Attempt
from jobs.store.queue.workers import Death
from tests.support.stores import store
from tests.support.stores.store import ECHO, results
from tests.support.stores.transactions import execute, fetch, scalar, transact

LEASE_S = 60.0


def post(database: Engine, count: int) -> UUID:
    return store.post(database, *["x"] * count)


def worker(database: Engine) -> int:
    with database.begin() as tx:
        incarnation = workers.register(tx, "w", "default", "cpu", ["echo@1"])
        workers.heartbeat(tx, incarnation, "ready")
        return incarnation


def claim(database: Engine, owner: int) -> list[Lease]:
    with database.begin() as tx:
        usual = claims.claim(tx, owner, {ECHO: 10_000}, LEASE_S)
        return usual or claims.claim_suspect(tx, owner, ECHO, LEASE_S)


def claimed(database: Engine, count: int) -> tuple[UUID, int, list[Lease]]:
    """A job of one slice, which a worker has: job, worker, leases."""
    job, owner = post(database, count), worker(database)
    return job, owner, claim(database, owner)


def report_death(database: Engine, incarnation: int, how: Death) -> None:
    transact(database, workers.report_death, incarnation, how)


def die(database: Engine, incarnation: int, how: Death = "crashed") -> None:
    report_death(database, incarnation, how)
    reap(database)


def crash_twice(database: Engine) -> None:
    """Two workers die of a slice, so that it is split: suspect first, then accused."""
    for _ in range(2):
        owner = worker(database)
        claim(database, owner)
        die(database, owner)


def reap(database: Engine, watch: ClockWatch | None = None) -> int:
    return transact(database, reaping.reap, 0.0, watch)


def slices(database: Engine, job: UUID) -> list[tuple[int, int, str, bool, int]]:
    query = "SELECT start, stop, state, suspect, deaths FROM slices WHERE job_id = :job ORDER BY 1"
    return [tuple(row) for row in fetch(database, query, {"job": job})]


def lapse(database: Engine, *, silent: bool = False) -> None:
    store.lapse(database)
    if silent:
        execute(database, "UPDATE workers SET heartbeat_at = now() - interval '1 h'")


def beats(database: Engine, owner: int) -> None:
    lapse(database)
    execute(database, "UPDATE workers SET heartbeat_at = now() + interval '1 h'")


def is_watched(database: Engine, owner: int) -> None:
    lapse(database, silent=True)
    transact(database, workers.record_watched, owner)
    execute(database, "UPDATE workers SET watched_at = now() + interval '1 h'")


@pytest.mark.parametrize(
    ("happens", "suspect"),
    [
        (lambda database, owner: report_death(database, owner, "crashed"), True),
        (lambda database, owner: report_death(database, owner, "killed"), False),
        (lambda database, owner: transact(database, workers.heartbeat, owner, "stopped"), False),
        (lambda database, owner: lapse(database, silent=True), True),
        (is_watched, False),
        (beats, False),
    ],
    ids=["crashed", "killed", "stopped", "silent", "silent but watched", "late but beating"],
)
def test_slices_of_dead_workers_are_suspect_and_of_others_free_at_no_cost(
    database: Engine, happens: Callable[[Engine, int], None], suspect: bool
) -> None:
    job, owner, _ = claimed(database, 3)
    happens(database, owner)
    assert reap(database) == 1
    assert slices(database, job) == [(0, 3, "ready", suspect, 0)]


def test_slices_of_a_sick_worker_run_alone_next_at_no_cost(database: Engine) -> None:
    post(database, 1)
    for _ in range(DEATHS_ALONE + 1):
        sick = worker(database)
        [lease] = claim(database, sick)
        die(database, sick, "sick")
    [last] = claim(database, worker(database))
    assert (lease.suspect, last.suspect) == (True, True)
    assert scalar(database, "SELECT deaths FROM slices") == 0


def test_each_suspect_has_its_turn(database: Engine) -> None:
    jobs = {post(database, 1), post(database, 1)}
    fallen = worker(database)
    assert len(claim(database, fallen)) == 2
    die(database, fallen)
    tried = []
    for _ in jobs:
        next_one = worker(database)
        tried += claim(database, next_one)
        die(database, next_one)
    assert {lease.job_id for lease in tried} == jobs


def test_after_an_outage_workers_may_renew_before_anything_is_reaped(database: Engine) -> None:
    job, _, leases = claimed(database, 3)
    lapse(database, silent=True)
    with database.begin() as tx:
        assert reaping.reap(tx, lease_s=1e9) == 0  # the server is younger than that
        assert claims.renew(tx, leases, LEASE_S) == {(job, 0): "running"}
    assert reap(database) == 0


class Clocks:
    """Ours and the database's, which a test sets ahead, and a watch on both."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self._ours_s, self._databases_s = monkeypatch, 0.0, 0.0
        self.watch = ClockWatch(LEASE_S, LEASE_S, lambda: clock.monotonic() + self._ours_s)

    def step(self, seconds: float, ours: bool = True) -> None:
        self._databases_s += seconds
        self._ours_s += seconds if ours else 0.0
        ahead = extract("epoch", func.clock_timestamp()) + self._databases_s
        self._patch.setattr(clock_watch, "_CLOCK", select(ahead))


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_a_step_of_the_databases_clock_accuses_nobody(database: Engine, clocks: Clocks) -> None:
    job, _, leases = claimed(database, 3)
    assert reap(database, clocks.watch) == 0
    clocks.step(LEASE_S, ours=False)
    lapse(database, silent=True)
    assert reap(database, clocks.watch) == 0
    assert transact(database, claims.renew, leases, LEASE_S) == {(job, 0): "running"}
    assert slices(database, job) == [(0, 3, "leased", False, 0)]
    lapse(database, silent=True)
    clocks.step(LEASE_S)
    assert reap(database, clocks.watch) == 1, "a lease later it is lost as ever"
    assert slices(database, job) == [(0, 3, "ready", True, 0)]


def test_without_a_look_for_long_workers_may_renew_first(database: Engine, clocks: Clocks) -> None:
    """A keeper that is new, or whose database was away for as long."""
    job, owner = post(database, 3), worker(database)
    for _ in range(2):
        leases = claim(database, owner)
        lapse(database, silent=False)
        assert reap(database, clocks.watch) == 0
        assert transact(database, claims.renew, leases, LEASE_S) == {(job, 0): "running"}
        lapse(database, silent=False)
        clocks.step(LEASE_S)
        assert reap(database, clocks.watch) == 1
        clocks.step(2 * LEASE_S)


def test_suspects_are_claimed_apart_and_one_at_a_time(database: Engine) -> None:
    first, second, owner = post(database, 2), post(database, 2), worker(database)
    assert len(claim(database, owner)) == 2
    die(database, owner)
    fresh, owner = post(database, 2), worker(database)
    with database.begin() as tx:
        usual = claims.claim(tx, owner, {ECHO: 10_000}, LEASE_S)
        assert [lease.job_id for lease in usual] == [fresh]
        assert backlog.suspects_wait(tx, [ECHO])
        [lease] = claims.claim_suspect(tx, owner, ECHO, LEASE_S)
    assert lease.suspect
    assert lease.job_id in (first, second)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 1000])
@pytest.mark.parametrize("place", ["first", "last"])
def test_the_guilty_item_alone_is_quarantined_in_log2_n_plus_5_deaths(
    database: Engine, count: int, place: str
) -> None:
    guilty = 0 if place == "first" else count - 1
    job, deaths, owner = post(database, count), 0, worker(database)
    while leases := claim(database, owner):
        if any(lease.start <= guilty < lease.stop for lease in leases):
            deaths += 1
            die(database, owner)
            owner = worker(database)
        else:
            store.settle(database, leases)
    assert deaths <= log2(count) + 5
    row = store.job(database, job)
    assert (row.state, row.succeeded, row.failed) == ("completed", count - 1, 1)
    item = transact(database, detail.item, "default", job, guilty)
    assert item
    assert (item.outcome, orjson.loads(item.error)["code"]) == ("failed", "worker_lost")


def test_an_innocent_item_survives_any_number_of_kills(database: Engine) -> None:
    job = post(database, 1)
    for _ in range(20):
        owner = worker(database)
        assert claim(database, owner)
        die(database, owner, "killed")
    store.settle(database, claim(database, worker(database)))
    assert store.job(database, job).succeeded == 1


def test_results_that_are_there_are_not_computed_again_after_a_split(database: Engine) -> None:
    job, _, leases = claimed(database, 8)
    store.settle(database, leases, {*range(8)} - {5})
    crash_twice(database)  # the second time while one item alone was left
    assert slices(database, job) == [(0, 8, "ready", True, 1)]
    with database.begin() as tx:
        [lease] = claims.claim_suspect(tx, worker(database), ECHO, LEASE_S)
        assert [row[1] for row in claims.read_inputs(tx, [lease])] == [5]


def test_a_split_keeps_counts_and_both_halves_have_lists_of_the_same_kind(database: Engine) -> None:
    job, _, leases = claimed(database, 8)
    store.settle(database, leases, (0, 1, 7))
    execute(database, "UPDATE slices SET inputs = 7")
    crash_twice(database)
    query = "SELECT start, stop, n_succeeded, inputs FROM slices WHERE job_id = :job ORDER BY start"
    assert fetch(database, query, {"job": job}) == [(0, 4, 2, 7), (4, 8, 1, 7)]


def test_a_suspect_of_a_cancelled_job_ends_with_it(database: Engine) -> None:
    job, owner, _ = claimed(database, 4)
    transact(database, verbs.cancel, job)
    die(database, owner)
    row = store.job(database, job)
    assert (row.state, row.cancelled) == ("cancelled", 4)


# -- attempts


def fail(job: UUID, seq: int, n: int, delay_s: float) -> Attempt:
    return Attempt(job, "default", seq, n, '{"code":"transient","message":"no"}', None, delay_s)


def failures(database: Engine, leases: list[Lease]) -> dict[int, Any]:
    """Of each item that is still to run: the errors of its attempts."""
    rows = transact(database, claims.read_inputs, leases)
    return {seq: orjson.loads(found or "[]") for _, seq, _, _, found in rows}


def settle(
    database: Engine, leases: list[Lease], attempts: list[Attempt], done: tuple[int, ...] = ()
) -> None:
    ended = results(leases[0], *done) if done else []
    transact(database, settling.settle, leases, ended, attempts)


def test_a_failed_item_waits_for_its_next_attempt_and_the_others_are_kept(database: Engine) -> None:
    job, owner, leases = claimed(database, 3)
    settle(database, leases, [fail(job, 1, 1, delay_s=3600)], done=(0, 2))
    assert claim(database, owner) == []
    execute(database, "UPDATE attempts SET due_at = now() - interval '1 s'")
    execute(database, "UPDATE slices SET not_before = now() - interval '1 s'")
    [lease] = again = claim(database, owner)
    assert lease.retrying
    assert failures(database, again) == {1: [{"code": "transient", "message": "no"}]}


def test_a_slice_is_ready_again_when_the_first_of_its_items_is(database: Engine) -> None:
    job, owner, leases = claimed(database, 3)
    settle(database, leases, [fail(job, 0, 1, 3600.0), fail(job, 1, 1, 0.0)])
    again = claim(database, owner)  # 2 was never tried, 1 is due
    assert failures(database, again).keys() == {1, 2}


def test_a_crash_loses_no_attempt_and_a_stale_owner_counts_none(database: Engine) -> None:
    job, owner, stale = claimed(database, 1)
    die(database, owner, "killed")
    settle(database, stale, [fail(job, 0, 1, 0.0)])
    assert scalar(database, "SELECT count(*) FROM attempts") == 0
    owner = worker(database)
    settle(database, claim(database, owner), [fail(job, 0, 1, 0.0)])
    claim(database, owner)
    die(database, owner, "killed")
    assert len(failures(database, claim(database, worker(database)))[0]) == 1


def test_attempts_keep_their_time_in_a_pause(database: Engine) -> None:
    job, owner, leases = claimed(database, 2)
    transact(database, verbs.pause, job)
    settle(database, leases, [fail(job, 1, 1, 3600)], done=(0,))
    transact(database, verbs.resume, job)
    assert claim(database, owner) == []


def test_results_refuse_to_be_changed(database: Engine) -> None:
    store.settle(database, claimed(database, 1)[2])
    with pytest.raises(Exception, match="insert-only"):
        execute(database, "UPDATE results SET output = 'x'")


def test_a_frozen_process_holds_no_lock_for_long(database: Engine, database_url: str) -> None:
    claimed(database, 1)
    frozen = db.connect(database_url, pool_size=1, idle_s=0.2)
    tx = frozen.connect()
    tx.execute(text("SELECT 1 FROM slices FOR UPDATE"))
    with database.begin() as other:
        other.execute(text("SET LOCAL lock_timeout = '20 s'"))
        other.execute(text("SELECT 1 FROM slices FOR UPDATE"))
    with pytest.raises(db.CONNECTION_ERRORS):
        tx.execute(text("SELECT 1"))
    tx.close()
    frozen.dispose()
