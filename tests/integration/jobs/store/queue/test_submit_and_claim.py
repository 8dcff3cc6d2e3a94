"""From submission to settlement, on the store alone: what a worker does, without a worker."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from jobs import states
from jobs.errors import Conflict, Invalid
from jobs.models.builtin_models import SAMPLES
from jobs.store import db
from jobs.store.jobs import read, verbs
from jobs.store.queue import backlog, reap
from jobs.store.queue import claim as claims
from jobs.store.queue import settle as settling
from jobs.store.queue.settle import Attempt
from jobs.usecases.submit import Order, submit
from tests.support.stores.store import (
    ECHO,
    claim,
    count,
    lapse,
    post,
    result_chunks,
    results,
    settle,
)
from tests.support.stores.store import job as job_row
from tests.support.stores.transactions import execute, transact, waits_for_lock
from tests.support.wait import eventually


def lines(database: Engine, job: UUID, **query: Any) -> list[str]:
    return b"".join(result_chunks(database, job, **query)).decode().splitlines()


def seqs(database: Engine, job: UUID, **query: Any) -> list[str]:
    return [line[7] for line in lines(database, job, **query)]


def test_a_submission_answers_what_a_reader_sees(database: Engine) -> None:
    order = Order("echo", priority=3, metadata={"a": "b"}, expires_in_s=None)
    answered = submit(database, SAMPLES, "default", order, array=["x", "y"])
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
    assert [lease.job_id for lease in claim(database, room=3)] == small[:3]
    assert [lease.job_id for lease in claim(database, room=10)] == small[3:]
    assert [(lease.start, lease.stop) for lease in claim(database, room=10)] == [(0, 1000)]


@pytest.mark.parametrize(
    ("jobs", "items", "room", "claimed"),
    [
        (1, 20_000, 4096, 4),  # slices of 1,000
        (1, 20_000, 99_999, 16),
        (30, 100, 3000, 16),
        (150, 10, 1500, 100),  # 1,000 inputs, in as many slices as they have
    ],
)
def test_a_claim_takes_more_inputs_than_a_slice_has_in_few_slices_alone(
    database: Engine, jobs: int, items: int, room: int, claimed: int
) -> None:
    for _ in range(jobs):
        post(database, *range(items))
    assert len(claim(database, room)) == claimed


def test_an_entry_with_larger_slices_has_claims_of_as_many_inputs(database: Engine) -> None:
    for _ in range(30):
        post(database, *range(100))
    large = replace(ECHO, limits=replace(ECHO.limits, slice_items=3000))
    assert len(claim(database, 3000, model=large)) == 30


def test_a_slice_is_leased_once(database: Engine) -> None:
    for _ in range(20):
        post(database, "x")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: claim(database, room=7, owner=n), range(8)))
    leases = [lease.job_id for leases in found for lease in leases]
    assert len(leases) == len(set(leases)) == 20


def test_what_ended_is_recorded_while_its_slice_goes_on(database: Engine) -> None:
    job = post(database, *"abcd")
    [lease] = claim(database)
    assert transact(database, settling.record, [lease], results(lease, 0, 2)) == 1
    row = job_row(database, job)
    assert (row.state, row.succeeded, row.n_running) == ("running", 2, 2)
    assert len(lines(database, job)) == 1, "up to the first gap"
    with database.begin() as tx:
        assert claims.renew(tx, [lease], 60) == {(job, 0): "running"}
        assert settling.settle(tx, [lease], results(lease, 1, 3)) == 1
    row = job_row(database, job)
    assert (row.state, row.succeeded) == ("completed", 4)


def test_a_worker_that_dies_repeats_nothing_that_was_recorded(database: Engine) -> None:
    job = post(database, *"abcd")
    [lease] = claim(database)
    transient = Attempt(job, "default", 3, 1, '{"code":"transient"}', None, 3600.0)
    transact(database, settling.record, [lease], results(lease, 0, 2), [transient])
    lapse(database)
    transact(database, reap.reap, 0.0)
    again = claim(database, owner=2)
    assert [seq for _, seq, *_ in transact(database, claims.read_inputs, again)] == [1]


def test_a_tenant_is_charged_once_for_what_is_recorded_in_parts(database: Engine) -> None:
    post(database, *"abcd")
    with database.begin() as tx:
        [lease] = claims.claim(tx, 1, {ECHO: 10}, 60, item_ms={ECHO: 5.0})
        settling.record(tx, [lease], results(lease, 0, 1, device_us=1000))
        settling.record(tx, [lease], results(lease, 2, device_us=1000))
        settling.settle(tx, [lease], results(lease, 3, device_us=1000))
        charged = tx.scalar(text("SELECT time_ms FROM turns WHERE tenant_id = 'default'"))
    assert charged == pytest.approx(4.0)


@pytest.mark.parametrize("failover", [False, True])
def test_a_stale_owner_writes_nothing(database: Engine, failover: bool) -> None:
    job = post(database, "x", "y")
    stale = claim(database)
    if failover:  # the claim was lost with the old primary, and another worker made it again
        undo = "UPDATE slices SET state = 'ready', epoch = epoch - 1, lease_owner = NULL"
        execute(database, undo)
    else:
        lapse(database)
        assert transact(database, reap.reap, 0.0) == 1
        assert transact(database, settling.record, stale, results(stale[0], 0)) == 0
    fresh = claim(database, owner=2)
    assert (fresh[0].epoch > stale[0].epoch) != failover
    with database.begin() as tx:
        assert settling.record(tx, stale, results(stale[0], 0)) == 0
        assert claims.renew(tx, stale, 60) == {}
        assert claims.renew(tx, fresh, 60) == {(job, 0): "running"}
    assert settle(database, stale) == 0
    assert lines(database, job) == []
    assert settle(database, fresh) == 1
    assert len(lines(database, job)) == 2


def test_a_slice_that_comes_back_runs_only_what_is_missing(database: Engine) -> None:
    job = post(database, *"abcde")
    settle(database, claim(database), seqs=[0, 3])
    assert job_row(database, job).succeeded == 2
    again = claim(database)
    assert [row[1] for row in transact(database, claims.read_inputs, again)] == [1, 2, 4]
    assert settle(database, again) == 1
    assert seqs(database, job) == list("01234")
    assert job_row(database, job).state == "completed"


def test_results_are_read_up_to_the_first_gap_or_past_it(database: Engine) -> None:
    def span(after: int = -1, gaps: bool = False, **more: Any) -> tuple[int, bool]:
        asked = {"outcome": None, "limit": None} | more
        found = transact(database, read.span, "default", job, 6, after=after, gaps=gaps, **asked)
        return found.until, found.complete

    job = post(database, *"abcdef")
    settle(database, claim(database), seqs=[0, 1, 4])
    assert seqs(database, job) == ["0", "1"]
    assert seqs(database, job, gaps=True) == ["0", "1", "4"]
    assert seqs(database, job, after=0) == ["1"]
    assert lines(database, job, after=1) == []
    assert (span(), span(gaps=True), span(after=2)) == ((1, False), (4, False), (2, False))
    settle(database, claim(database))
    assert (span(limit=4), span(after=3, limit=4)) == ((3, False), (5, True))
    assert span(outcome="failed") == (5, True)


def test_two_who_finish_the_last_two_slices_at_once_close_the_job(database: Engine) -> None:
    job = post(database, *["x"] * 2000)
    first, second = claim(database), claim(database)
    other_settles = threading.Thread(target=settle, args=(database, second))
    with database.begin() as tx:
        # Sees the other slice as leased, and holds the job.
        settling.settle(tx, first, results(first[0]))
        other_settles.start()
        eventually(lambda: waits_for_lock(database))
    other_settles.join()
    row = job_row(database, job)
    assert (row.state, row.succeeded) == ("completed", 2000)


def test_claimable_slices_are_counted_by_model(database: Engine) -> None:
    post(database, *["x"] * 3500)
    with database.connect() as tx:
        assert backlog.claimable(tx, SAMPLES, 100)["echo@1"] == 4
        most = backlog.claimable(tx, SAMPLES, 3)
    assert most == {model.key: 0 for model in SAMPLES} | {"echo@1": 3}


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
    chunks = result_chunks(database, job)
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
    job = post(database, "x")
    assert transact(database, read.get, "two", job) is None
    assert transact(database, read.get, "default", job) is not None


def test_every_fault_is_named_and_nothing_is_stored(database: Engine) -> None:
    lines = [
        (b'{"custom_id": "a", "input": 1}\n', set()),
        (b'{"custom_id": "a", "input": 2}\n', {"duplicate_custom_id"}),
        (b"{broken\n", {"malformed"}),
        (b'"nul \\u0000"\n', {"nul"}),
        (b'"\\ud800 alone"\n', {"lone_surrogate"}),
        (b'{"inputs": 1}\n', {"unknown_key", "missing"}),
        (b"\n", {"malformed"}),
        (b'"' + b"x" * 300_000 + b'"\n', {"too_long"}),
        (b'{"custom_id": 7, "input": 1}\n', {"custom_id"}),
    ]
    order, sent = Order("echo", params={"no": 1}), [line for line, _ in lines]
    with pytest.raises(Invalid) as caught:
        submit(database, SAMPLES, "default", order, lines=sent)
    found = {(fault.line, fault.code) for fault in caught.value.faults}
    named = {(n, code) for n, (_, codes) in enumerate(lines, 1) for code in codes}
    assert found == {(None, "unknown_param"), *named}
    assert count(database, "jobs") == count(database, "items") == 0


def test_wrong_types_are_named_by_their_place_and_an_empty_job_is_refused(database: Engine) -> None:
    with pytest.raises(Invalid) as caught:
        submit(database, SAMPLES, "default", Order("minilm"), array=["fine", 3, {"input": None}])
    assert [fault.loc for fault in caught.value.faults] == [("items", 1), ("items", 2, "input")]
    with pytest.raises(Invalid, match="1 fault"):
        post(database)


def test_a_connection_that_breaks_under_bulk_rows_is_the_database_away(database: Engine) -> None:
    with database.begin() as tx:
        tx.execute(text("SET LOCAL statement_timeout = 50"))
        with pytest.raises(db.CONNECTION_ERRORS):
            db.cursor(tx).execute("SELECT pg_sleep(10)")
        tx.rollback()
