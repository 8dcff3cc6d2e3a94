"""Lost leases: who is free, who is suspect, and how the guilty item ends up alone."""

from collections.abc import Callable
from math import log2
from uuid import UUID

import orjson
import pytest
from sqlalchemy import Engine, extract, func, select, text

from jobs import clock
from jobs.models.builtin_models import SAMPLES
from jobs.store import db
from jobs.store.jobs import detail, read, verbs
from jobs.store.jobs.read import JobRow
from jobs.store.queue import backlog, clock_watch, workers
from jobs.store.queue import claim as claims
from jobs.store.queue import reap as reaping
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease
from jobs.store.queue.clock_watch import ClockWatch
from jobs.store.queue.reap import DEATHS_ALONE
from jobs.store.queue.settle import Attempt, Result
from jobs.store.queue.workers import Death
from jobs.usecases.submit import Order, submit
from tests.support.stores.transactions import execute, fetch, scalar, transact

ECHO = SAMPLES.resolve("echo")
LEASE_S = 60.0


def post(database: Engine, count: int) -> UUID:
    id: UUID = submit(database, SAMPLES, "default", Order("echo"), array=["x"] * count).id
    return id


def worker(database: Engine) -> int:
    with database.begin() as tx:
        incarnation = workers.register(tx, "w", "default", "cpu", ["echo@1"])
        workers.heartbeat(tx, incarnation, "ready")
        return incarnation


def claim(database: Engine, owner: int) -> list[Lease]:
    with database.begin() as tx:
        usual = claims.claim(tx, owner, {ECHO: 10_000}, LEASE_S)
        return usual or claims.claim_suspect(tx, owner, ECHO, LEASE_S)


def finish(database: Engine, leases: list[Lease], but: int | None = None) -> None:
    """Settles what was claimed, all but one seq."""
    with database.begin() as tx:
        results = [
            Result(leases[n].job_id, "default", seq, "succeeded", 1, 0.0, None, value, None)
            for n, seq, value, *_ in claims.read_inputs(tx, leases)
            if seq != but
        ]
        settling.settle(tx, leases, results)


def die(database: Engine, incarnation: int, how: Death) -> None:
    transact(database, workers.report_death, incarnation, how)
    reap(database)


def reap(database: Engine, watch: ClockWatch | None = None) -> int:
    return transact(database, reaping.reap, 0.0, watch)


def slices(database: Engine, job: UUID) -> list[tuple[int, int, str, bool, int]]:
    query = "SELECT start, stop, state, suspect, deaths FROM slices WHERE job_id = :job ORDER BY 1"
    return [tuple(row) for row in fetch(database, query, {"job": job})]


def job_row(database: Engine, job: UUID) -> JobRow:
    return transact(database, read.one, "default", job)


def lapse(database: Engine, *, silent: bool) -> None:
    with database.begin() as tx:
        tx.execute(text("UPDATE slices SET lease_until = now() - interval '1 s'"))
        if silent:
            tx.execute(text("UPDATE workers SET heartbeat_at = now() - interval '1 h'"))


def test_slices_of_a_worker_that_crashed_are_suspect_at_once(database: Engine) -> None:
    job, owner = post(database, 3), worker(database)
    claim(database, owner)
    die(database, owner, "crashed")
    assert slices(database, job) == [(0, 3, "ready", True, 0)]


def test_slices_of_a_worker_killed_from_outside_are_free_at_no_cost(database: Engine) -> None:
    job, owner = post(database, 3), worker(database)
    claim(database, owner)
    die(database, owner, "killed")
    assert slices(database, job) == [(0, 3, "ready", False, 0)]


def test_slices_of_a_sick_worker_run_alone_next_at_no_cost(database: Engine) -> None:
    post(database, 1)
    for _ in range(DEATHS_ALONE + 1):
        sick = worker(database)
        [lease] = claim(database, sick)
        die(database, sick, "sick")
        reap(database)
    [last] = claim(database, worker(database))
    assert lease.suspect
    assert last.suspect
    assert scalar(database, "SELECT deaths FROM slices") == 0


def test_each_suspect_has_its_turn(database: Engine) -> None:
    jobs = {post(database, 1), post(database, 1)}
    fallen = worker(database)
    assert len(claim(database, fallen)) == 2
    die(database, fallen, "crashed")
    reap(database)
    tried = []
    for _ in jobs:
        next_one = worker(database)
        tried += claim(database, next_one)
        die(database, next_one, "crashed")
        reap(database)
    assert {lease.job_id for lease in tried} == jobs


def test_a_lease_that_ran_out_while_the_heart_beats_counts_nothing(database: Engine) -> None:
    job, owner = post(database, 3), worker(database)
    claim(database, owner)
    lapse(database, silent=False)
    execute(database, "UPDATE workers SET heartbeat_at = now() + interval '1 h'")
    assert reap(database) == 1
    assert slices(database, job) == [(0, 3, "ready", False, 0)]


def test_a_worker_that_fell_silent_with_its_lease_is_dead(database: Engine) -> None:
    job, owner = post(database, 3), worker(database)
    claim(database, owner)
    lapse(database, silent=True)
    reap(database)
    assert slices(database, job) == [(0, 3, "ready", True, 0)]


def test_a_worker_its_supervisor_sees_alive_is_not_dead_however_silent(database: Engine) -> None:
    job, owner = post(database, 3), worker(database)
    claim(database, owner)
    lapse(database, silent=True)
    with database.begin() as tx:
        workers.record_watched(tx, owner)
        tx.execute(text("UPDATE workers SET watched_at = now() + interval '1 h'"))
    assert reap(database) == 1
    assert slices(database, job) == [(0, 3, "ready", False, 0)]


def test_after_an_outage_workers_may_renew_before_anything_is_reaped(database: Engine) -> None:
    job, owner = post(database, 3), worker(database)
    leases = claim(database, owner)
    lapse(database, silent=True)
    with database.begin() as tx:
        assert reaping.reap(tx, lease_s=3600.0) == 0  # the server is younger than that
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


def test_a_step_of_the_databases_clock_accuses_nobody_who_renews_then(
    database: Engine, clocks: Clocks
) -> None:
    job, owner = post(database, 3), worker(database)
    leases = claim(database, owner)
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


def test_without_a_look_for_long_workers_may_renew_before_a_reap(
    database: Engine, clocks: Clocks
) -> None:
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


def test_a_slice_given_back_by_a_worker_that_stopped_is_free(database: Engine) -> None:
    job, owner = post(database, 3), worker(database)
    claim(database, owner)
    transact(database, workers.heartbeat, owner, "stopped")
    assert reap(database) == 1
    assert slices(database, job) == [(0, 3, "ready", False, 0)]


def test_suspects_are_claimed_apart_and_one_at_a_time(database: Engine) -> None:
    first, second, owner = post(database, 2), post(database, 2), worker(database)
    assert len(claim(database, owner)) == 2
    die(database, owner, "crashed")
    fresh = post(database, 2)
    owner = worker(database)
    with database.begin() as tx:
        assert [lease.job_id for lease in claims.claim(tx, owner, {ECHO: 10_000}, LEASE_S)] == [
            fresh
        ]
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
    job, deaths = post(database, count), 0
    owner = worker(database)
    while leases := claim(database, owner):
        if any(lease.start <= guilty < lease.stop for lease in leases):
            deaths += 1
            die(database, owner, "crashed")
            owner = worker(database)
        else:
            finish(database, leases)
    assert deaths <= log2(count) + 5
    row = job_row(database, job)
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
    finish(database, claim(database, worker(database)))
    assert job_row(database, job).succeeded == 1


def test_results_that_are_there_are_not_computed_again_after_a_split(database: Engine) -> None:
    job, owner = post(database, 8), worker(database)
    finish(database, claim(database, owner), but=5)
    for _ in range(2):  # suspect first, then accused while one item alone was left
        claim(database, owner)
        die(database, owner, "crashed")
        owner = worker(database)
    assert slices(database, job) == [(0, 8, "ready", True, 1)]
    with database.begin() as tx:
        [lease] = claims.claim_suspect(tx, owner, ECHO, LEASE_S)
        assert [row[1] for row in claims.read_inputs(tx, [lease])] == [5]


def test_a_split_keeps_counts_right(database: Engine) -> None:
    job, owner = post(database, 8), worker(database)
    leases = claim(database, owner)
    with database.begin() as tx:
        results = [
            Result(job, "default", seq, "succeeded", 1, 0.0, None, "1", None) for seq in (0, 1, 7)
        ]
        settling.settle(tx, leases, results)
    for _ in range(2):
        claim(database, owner)
        die(database, owner, "crashed")
        owner = worker(database)
    query = text("SELECT start, stop, n_succeeded FROM slices WHERE job_id = :job ORDER BY start")
    with database.connect() as tx:
        assert tx.execute(query, {"job": job}).all() == [(0, 4, 2), (4, 8, 1)]


def test_both_halves_of_a_split_have_lists_of_the_same_kind(database: Engine) -> None:
    job = post(database, 8)
    execute(database, "UPDATE slices SET inputs = 7")
    for _ in range(2):
        owner = worker(database)
        claim(database, owner)
        die(database, owner, "crashed")
    query = text("SELECT start, inputs FROM slices WHERE job_id = :job ORDER BY start")
    with database.connect() as tx:
        assert tx.execute(query, {"job": job}).all() == [(0, 7), (4, 7)]


def test_a_suspect_of_a_cancelled_job_ends_with_it(database: Engine) -> None:
    job, owner = post(database, 4), worker(database)
    claim(database, owner)
    transact(database, verbs.cancel, job)
    die(database, owner, "crashed")
    row = job_row(database, job)
    assert (row.state, row.cancelled) == ("cancelled", 4)


# -- attempts


def fail(job: UUID, seq: int, n: int, delay_s: float) -> Attempt:
    return Attempt(job, "default", seq, n, '{"code":"transient","message":"no"}', None, delay_s)


def due(database: Engine) -> None:
    with database.begin() as tx:
        tx.execute(text("UPDATE attempts SET due_at = now() - interval '1 s'"))
        tx.execute(text("UPDATE slices SET not_before = now() - interval '1 s'"))


@pytest.fixture
def settle(database: Engine) -> Callable[..., None]:
    def run(leases: list[Lease], done: list[int], attempts: list[Attempt]) -> None:
        job = leases[0].job_id
        results = [Result(job, "default", s, "succeeded", 1, 0.0, None, "1", None) for s in done]
        transact(database, settling.settle, leases, results, attempts)

    return run


def test_a_failed_item_waits_for_its_next_attempt_and_the_others_are_kept(
    database: Engine, settle: Callable[..., None]
) -> None:
    job, owner = post(database, 3), worker(database)
    settle(claim(database, owner), [0, 2], [fail(job, 1, 1, delay_s=3600)])
    assert claim(database, owner) == []
    due(database)
    [lease] = again = claim(database, owner)
    assert lease.retrying
    [(_, seq, _, _, failures)] = transact(database, claims.read_inputs, again)
    assert (seq, orjson.loads(failures or "")) == (1, [{"code": "transient", "message": "no"}])


def test_a_slice_is_ready_again_when_the_first_of_its_items_is(
    database: Engine, settle: Callable[..., None]
) -> None:
    job, owner = post(database, 3), worker(database)
    settle(claim(database, owner), [], [fail(job, 0, 1, 3600.0), fail(job, 1, 1, 0.0)])
    again = claim(database, owner)  # 2 was never tried, 1 is due
    assert [row[1] for row in transact(database, claims.read_inputs, again)] == [1, 2]


def test_a_crash_loses_no_attempt(database: Engine, settle: Callable[..., None]) -> None:
    job, owner = post(database, 1), worker(database)
    settle(claim(database, owner), [], [fail(job, 0, 1, 0.0)])
    claim(database, owner)
    die(database, owner, "killed")
    again = claim(database, worker(database))
    [(_, _, _, _, failures)] = transact(database, claims.read_inputs, again)
    assert len(orjson.loads(failures or "")) == 1


def test_a_stale_owner_counts_no_attempt(database: Engine, settle: Callable[..., None]) -> None:
    job, owner = post(database, 1), worker(database)
    stale = claim(database, owner)
    die(database, owner, "killed")
    settle(stale, [], [fail(job, 0, 1, 0.0)])
    assert scalar(database, "SELECT count(*) FROM attempts") == 0


def test_attempts_keep_their_time_in_a_pause(database: Engine, settle: Callable[..., None]) -> None:
    job, owner = post(database, 2), worker(database)
    leases = claim(database, owner)
    transact(database, verbs.pause, job)
    settle(leases, [0], [fail(job, 1, 1, 3600)])
    transact(database, verbs.resume, job)
    assert claim(database, owner) == []


def test_results_refuse_to_be_changed(database: Engine) -> None:
    post(database, 1)
    finish(database, claim(database, worker(database)))
    with pytest.raises(Exception, match="insert-only"), database.begin() as tx:
        tx.execute(text("UPDATE results SET output = 'x'"))


def test_a_process_that_froze_in_its_transaction_holds_no_lock_for_long(
    database: Engine, database_url: str
) -> None:
    post(database, 1)
    claim(database, worker(database))
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
