"""From submission to settlement, on the store alone: what a worker does, without a worker."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from jobs import states
from jobs.errors import Conflict, Invalid
from jobs.models.builtin_models import SAMPLES
from jobs.store import db
from jobs.store.jobs import read, verbs
from jobs.store.jobs.read import JobRow
from jobs.store.queue import backlog, reap
from jobs.store.queue import claim as claims
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Attempt, Result
from jobs.usecases.submit import Order, submit
from tests.support.stores.transactions import execute, scalar, transact
from tests.support.wait import eventually

MODELS = SAMPLES
ECHO = SAMPLES.resolve("echo")


def post(database: Engine, *items: object, tenant: str = "default", **order: object) -> UUID:
    ordered = Order("echo", **order)  # type: ignore[arg-type]
    id: UUID = submit(database, MODELS, tenant, ordered, array=list(items)).id
    return id


def claim(database: Engine, room: int = 1000, owner: int = 1) -> list[Lease]:
    return transact(database, claims.claim, owner, {ECHO: room}, lease_s=60)


def settle(database: Engine, leases: list[Lease], seqs: list[int] | None = None) -> int:
    with database.begin() as tx:
        rows = [
            Result(
                leases[index].job_id,
                leases[index].tenant,
                seq,
                "succeeded",
                1,
                0.5,
                None,
                text,
                None,
            )
            for index, seq, text, *_ in claims.read_inputs(tx, leases)
            if seqs is None or seq in seqs
        ]
        return settling.settle(tx, leases, rows)


def job_row(database: Engine, job: UUID, tenant: str = "default") -> JobRow:
    return transact(database, read.one, tenant, job)


def lines(database: Engine, job: UUID, **query: object) -> list[str]:
    options = {"after": -1, "gaps": False, "outcome": None, "limit": None} | query
    with database.connect() as tx:
        row = read.one(tx, "default", job)
        span = read.span(tx, "default", job, row.total, **options)  # type: ignore[arg-type]
    chunks = read.result_lines(database, row, span, "characters", options["outcome"])  # type: ignore[arg-type]
    return b"".join(chunks).decode().splitlines()


def test_a_submission_answers_what_a_reader_sees(database: Engine) -> None:
    order = Order("echo", priority=3, metadata={"a": "b"}, expires_in_s=None)
    answered = submit(database, MODELS, "default", order, array=["x", "y"])
    seen = job_row(database, answered.id)
    assert replace(answered, read_at=seen.read_at) == seen


def test_a_job_runs_from_submission_to_its_end(database: Engine) -> None:
    job = post(database, "a", {"custom_id": "b-1", "input": 'b\t\\\n"é'}, {"input": "c"})
    assert job_row(database, job).state == "queued"
    leases = claim(database)
    assert job_row(database, job).state == "running"
    assert settle(database, leases) == 1
    row = job_row(database, job)
    assert row.state == "completed"
    assert row.succeeded == 3
    assert lines(database, job) == [
        '{"seq":0,"custom_id":null,"outcome":"succeeded","output":"a","error":null,'
        '"usage":{"characters":1},"attempts":1}',
        '{"seq":1,"custom_id":"b-1","outcome":"succeeded","output":"b\\t\\\\\\n\\"é","error":null,'
        '"usage":{"characters":1},"attempts":1}',
        '{"seq":2,"custom_id":null,"outcome":"succeeded","output":"c","error":null,'
        '"usage":{"characters":1},"attempts":1}',
    ]


def test_a_claim_takes_many_small_jobs_and_one_large_slice_at_least(database: Engine) -> None:
    small = [post(database, "x") for _ in range(5)]
    post(database, *["y"] * 1500)
    leases = claim(database, room=3)
    assert [lease.job_id for lease in leases] == small[:3]
    leases = claim(database, room=10)
    assert [lease.job_id for lease in leases] == small[3:]
    leases = claim(database, room=10)
    assert [(lease.start, lease.stop) for lease in leases] == [(0, 1000)]


def test_higher_priority_is_claimed_first(database: Engine) -> None:
    post(database, "x")
    urgent = post(database, "x", priority=5)
    assert [lease.job_id for lease in claim(database, room=1)] == [urgent]


def test_a_slice_is_leased_once(database: Engine) -> None:
    for _ in range(20):
        post(database, "x")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: claim(database, room=7, owner=n), range(8)))
    leases = [lease.job_id for leases in found for lease in leases]
    assert len(leases) == len(set(leases)) == 20


def rows(lease: Lease, *seqs: int, device_us: int = 0) -> list[Result]:
    key = lease.job_id, lease.tenant
    return [Result(*key, seq, "succeeded", 1, 0.5, None, '"x"', None, 1, device_us) for seq in seqs]


def test_what_ended_is_recorded_while_its_slice_goes_on(database: Engine) -> None:
    job = post(database, *"abcd")
    [lease] = claim(database)
    assert transact(database, settling.record, [lease], rows(lease, 0, 2)) == 1
    row = job_row(database, job)
    assert (row.state, row.succeeded, row.n_running) == ("running", 2, 2)
    assert len(lines(database, job)) == 1, "up to the first gap"
    with database.begin() as tx:
        assert claims.renew(tx, [lease], 60) == {(job, 0): "running"}
        assert settling.settle(tx, [lease], rows(lease, 1, 3)) == 1
    row = job_row(database, job)
    assert (row.state, row.succeeded) == ("completed", 4)


def test_a_worker_that_dies_repeats_nothing_that_was_recorded(database: Engine) -> None:
    job = post(database, *"abcd")
    [lease] = claim(database)
    transient = Attempt(job, "default", 3, 1, '{"code":"transient"}', None, 3600.0)
    transact(database, settling.record, [lease], rows(lease, 0, 2), [transient])
    with database.begin() as tx:
        tx.execute(text("UPDATE slices SET lease_until = now() - interval '1 s'"))
        reap.reap(tx, 0.0)
    again = claim(database, owner=2)
    assert [seq for _, seq, *_ in transact(database, claims.read_inputs, again)] == [1]


def test_a_lost_lease_records_nothing(database: Engine) -> None:
    job = post(database, "x", "y")
    [lease] = claim(database)
    with database.begin() as tx:
        tx.execute(text("UPDATE slices SET lease_until = now() - interval '1 s'"))
        reap.reap(tx, 0.0)
        assert settling.record(tx, [lease], rows(lease, 0)) == 0
    assert lines(database, job) == []


def test_a_tenant_is_charged_once_for_what_is_recorded_in_parts(database: Engine) -> None:
    post(database, *"abcd")
    with database.begin() as tx:
        [lease] = claims.claim(tx, 1, {ECHO: 10}, 60, item_ms={ECHO: 5.0})
        settling.record(tx, [lease], rows(lease, 0, 1, device_us=1000))
        settling.record(tx, [lease], rows(lease, 2, device_us=1000))
        settling.settle(tx, [lease], rows(lease, 3, device_us=1000))
        charged = tx.scalar(text("SELECT time_ms FROM turns WHERE tenant_id = 'default'"))
    assert charged == pytest.approx(4.0)


def test_an_owner_whose_epoch_a_failover_repeated_writes_nothing(database: Engine) -> None:
    """The claim was lost with the old primary, and another worker made it again."""
    job = post(database, "x", "y")
    old = claim(database, owner=1)
    execute(database, "UPDATE slices SET state = 'ready', epoch = epoch - 1, lease_owner = NULL")
    new = claim(database, owner=2)
    assert new[0].epoch == old[0].epoch
    with database.begin() as tx:
        assert settling.record(tx, old, rows(old[0], 0)) == 0
        assert claims.renew(tx, old, 60) == {}
    assert settle(database, old) == 0
    assert lines(database, job) == []
    assert settle(database, new) == 1


def test_a_stale_owner_writes_nothing(database: Engine) -> None:
    job = post(database, "x", "y")
    stale = claim(database)
    execute(database, "UPDATE slices SET lease_until = now() - interval '1 s'")
    assert transact(database, reap.reap, 0.0) == 1
    fresh = claim(database, owner=2)
    assert fresh[0].epoch > stale[0].epoch
    assert settle(database, stale) == 0
    assert lines(database, job) == []
    with database.begin() as tx:
        assert claims.renew(tx, stale, 60) == {}
        assert claims.renew(tx, fresh, 60) == {(job, 0): "running"}
    assert settle(database, fresh) == 1
    assert len(lines(database, job)) == 2


def test_a_slice_that_comes_back_runs_only_what_is_missing(database: Engine) -> None:
    job = post(database, *"abcde")
    settle(database, claim(database), seqs=[0, 3])
    assert job_row(database, job).succeeded == 2
    again = claim(database)
    assert [row[1] for row in transact(database, claims.read_inputs, again)] == [1, 2, 4]
    assert settle(database, again) == 1
    assert [line[7] for line in lines(database, job)] == list("01234")
    assert job_row(database, job).state == "completed"


def test_results_are_read_up_to_the_first_gap_or_past_it(database: Engine) -> None:
    job = post(database, *"abcdef")
    settle(database, claim(database), seqs=[0, 1, 4])
    assert [line[7] for line in lines(database, job)] == ["0", "1"]
    assert [line[7] for line in lines(database, job, gaps=True)] == ["0", "1", "4"]
    assert [line[7] for line in lines(database, job, after=0)] == ["1"]
    assert lines(database, job, after=1) == []
    with database.connect() as tx:
        span = read.span(tx, "default", job, 6, after=-1, gaps=False, outcome=None, limit=None)
        assert (span.until, span.complete) == (1, False)
        span = read.span(tx, "default", job, 6, after=-1, gaps=True, outcome=None, limit=None)
        assert (span.until, span.complete) == (4, False)
        span = read.span(tx, "default", job, 6, after=2, gaps=False, outcome=None, limit=None)
        assert (span.until, span.complete) == (2, False)
    settle(database, claim(database))
    with database.connect() as tx:
        span = read.span(tx, "default", job, 6, after=-1, gaps=False, outcome=None, limit=4)
        assert (span.until, span.complete) == (3, False)
        span = read.span(tx, "default", job, 6, after=3, gaps=False, outcome=None, limit=4)
        assert (span.until, span.complete) == (5, True)
        span = read.span(tx, "default", job, 6, after=-1, gaps=False, outcome="failed", limit=None)
        assert (span.until, span.complete) == (5, True)


def test_two_who_finish_the_last_two_slices_at_once_close_the_job(database: Engine) -> None:
    job = post(database, *["x"] * 2000)
    first, second = claim(database), claim(database)
    other_settles = threading.Thread(target=settle, args=(database, second))
    with database.begin() as tx:
        rows = [
            Result(job, "default", seq, "succeeded", 1, None, None, output, None)
            for _, seq, output, *_ in claims.read_inputs(tx, first)
        ]
        settling.settle(tx, first, rows)  # sees the other slice as leased, and holds the job
        other_settles.start()
        eventually(lambda: _somebody_waits_for_a_lock(database))
    other_settles.join()
    row = job_row(database, job)
    assert (row.state, row.succeeded) == ("completed", 2000)


def _somebody_waits_for_a_lock(database: Engine) -> bool:
    return bool(scalar(database, "SELECT count(*) FROM pg_locks WHERE NOT granted"))


def test_claimable_slices_are_counted_by_model(database: Engine) -> None:
    post(database, *["x"] * 3500)
    with database.connect() as tx:
        assert backlog.claimable(tx, MODELS, 100)["echo@1"] == 4
        most = backlog.claimable(tx, MODELS, 3)
    assert most == {model.key: 0 for model in MODELS} | {"echo@1": 3}


def test_cancel_ends_what_waits_and_keeps_what_is_done(database: Engine) -> None:
    job = post(database, *["x"] * 3000)
    done, running = claim(database, room=1000), claim(database, room=1000)
    settle(database, done)
    assert transact(database, verbs.cancel, job) == "running"
    row = job_row(database, job)
    assert (row.state, row.succeeded, row.cancelled) == ("cancelling", 1000, 1000)
    settle(database, running, seqs=[1000, 1001])
    row = job_row(database, job)
    assert (row.state, row.succeeded, row.cancelled) == ("cancelled", 1002, 1998)
    assert len(lines(database, job)) == 3000
    assert transact(database, verbs.cancel, job) == "cancelled"


def test_a_cancelled_job_ends_with_its_lease_even_with_no_worker_alive(database: Engine) -> None:
    job = post(database, "x")
    claim(database)
    with database.begin() as tx:
        verbs.cancel(tx, job)
        tx.execute(text("UPDATE slices SET lease_until = now() - interval '1 s'"))
    transact(database, reap.reap, 0.0)
    assert job_row(database, job).state == "cancelled"


def test_a_paused_job_is_not_claimed_until_it_is_resumed(database: Engine) -> None:
    job = post(database, *["x"] * 2000)
    running = claim(database, room=1000)
    transact(database, verbs.pause, job)
    assert claim(database) == []
    settle(database, running, seqs=[5])
    assert claim(database) == []
    assert job_row(database, job).state == "paused"
    transact(database, verbs.resume, job)
    assert job_row(database, job).state == "running"
    for _ in range(2):
        settle(database, claim(database))
    assert job_row(database, job).state == "completed"


def test_expiry_ends_everything_and_keeps_partial_results(database: Engine) -> None:
    job = post(database, *["x"] * 3000, expires_in_s=0.001)
    settle(database, claim(database))
    leased = claim(database)
    with database.begin() as tx:
        assert verbs.expired(tx) == [job]
        verbs.expire(tx, job)
    row = job_row(database, job)
    assert (row.state, row.succeeded, row.expired) == ("expired", 1000, 2000)
    assert settle(database, leased) == 0


def test_retry_runs_again_what_did_not_succeed(database: Engine) -> None:
    job = post(database, *["x"] * 2000)
    settle(database, claim(database))
    with database.begin() as tx:
        assert verbs.retry(tx, job) == "running"
        verbs.cancel(tx, job)
    assert transact(database, verbs.retry, job) == "cancelled"
    row = job_row(database, job)
    assert (row.state, row.generation, row.succeeded) == ("queued", 2, 1000)
    assert settle(database, claim(database)) == 1
    assert job_row(database, job).succeeded == 2000
    with database.begin() as tx:
        assert verbs.retry(tx, job) == "completed"
        assert tx.scalar(text("SELECT count(*) FROM results_archive")) == 1000
    assert job_row(database, job).state == "completed"


def test_a_reader_is_told_when_a_retry_changes_what_it_reads(database: Engine) -> None:
    job = post(database, *["x"] * 2000)
    transact(database, verbs.cancel, job)
    with database.connect() as tx:
        row = read.one(tx, "default", job)
        span = read.span(tx, "default", job, 2000, after=-1, gaps=False, outcome=None, limit=None)
    chunks = read.result_lines(database, row, span, "characters", None)
    next(chunks)
    transact(database, verbs.retry, job)
    with pytest.raises(Conflict):
        list(chunks)


def test_renewal_does_not_wait_for_a_verb_and_loses_nothing_by_it(database: Engine) -> None:
    job = post(database, "x")
    leases = claim(database)
    with database.begin() as verb, database.begin() as tx:
        verb.execute(text("SELECT 1 FROM slices FOR UPDATE"))
        tx.execute(text("SET LOCAL lock_timeout = '1s'"))
        assert claims.renew(tx, leases, 60) == {(job, 0): "running"}


def test_the_states_in_the_code_are_those_of_the_database(database: Engine) -> None:
    with database.connect() as tx:
        checks = " ".join(
            tx.scalars(text("SELECT pg_get_constraintdef(oid) FROM pg_constraint")).all()
        )
        outcomes = tx.scalars(text("SELECT unnest(enum_range(NULL::outcome))::text")).all()
    assert tuple(outcomes) == states.OUTCOMES
    for words in (states.JOB_STATES, states.SLICE_STATES, states.JOB_CLASSES):
        assert ", ".join(f"'{word}'::text" for word in words) in checks
    begun_anew = {"queued", "validating"}
    assert {state for state, after in states.TRANSITIONS.items() if begun_anew >= {*after}} == (
        states.TERMINAL
    )


def test_another_tenants_job_is_not_there(database: Engine) -> None:
    job = post(database, "x", tenant="one")
    with database.connect() as tx:
        assert read.get(tx, "two", job) is None
        assert read.get(tx, "one", job) is not None


def test_every_fault_is_named_and_nothing_is_stored(database: Engine) -> None:
    ndjson = [
        b'{"custom_id": "a", "input": 1}\n',
        b'{"custom_id": "a", "input": 2}\n',
        b"{broken\n",
        b'"nul \\u0000"\n',
        b'"\\ud800 alone"\n',
        b'{"inputs": 1}\n',
        b"\n",
        b'"' + b"x" * 300_000 + b'"\n',
        b'{"custom_id": 7, "input": 1}\n',
    ]
    with pytest.raises(Invalid) as caught:
        submit(database, MODELS, "default", Order("echo", params={"no": 1}), lines=ndjson)
    found = {(fault.line, fault.code) for fault in caught.value.faults}
    assert found == {
        (None, "unknown_param"),
        (2, "duplicate_custom_id"),
        (3, "malformed"),
        (4, "nul"),
        (5, "lone_surrogate"),
        (6, "unknown_key"),
        (6, "missing"),
        (7, "malformed"),
        (8, "too_long"),
        (9, "custom_id"),
    }
    with database.connect() as tx:
        assert tx.scalar(text("SELECT count(*) FROM jobs")) == 0
        assert tx.scalar(text("SELECT count(*) FROM items")) == 0


def test_wrong_types_are_named_by_their_place(database: Engine) -> None:
    with pytest.raises(Invalid) as caught:
        submit(database, MODELS, "default", Order("minilm"), array=["fine", 3, {"input": None}])
    assert [fault.loc for fault in caught.value.faults] == [("items", 1), ("items", 2, "input")]


def test_an_empty_job_is_refused(database: Engine) -> None:
    with pytest.raises(Invalid, match="1 fault"):
        submit(database, MODELS, "default", Order("echo"), array=[])


def test_a_connection_that_breaks_under_bulk_rows_is_the_database_away(database: Engine) -> None:
    with database.begin() as tx:
        tx.execute(text("SET LOCAL statement_timeout = 50"))
        with pytest.raises(db.CONNECTION_ERRORS):
            db.cursor(tx).execute("SELECT pg_sleep(10)")
        tx.rollback()
