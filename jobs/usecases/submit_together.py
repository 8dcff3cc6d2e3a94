"""Small jobs of several requests, stored in one transaction: they share its commit."""

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

from sqlalchemy import Engine as Database

from jobs.errors import IdempotencyKeyInFlight, IdempotencyKeyReused, SpendCap
from jobs.intake.idempotency_key import Claim, JobDeleted
from jobs.store.billing import quota, spend
from jobs.store.db import CONNECTION_ERRORS, Tx
from jobs.store.jobs import idempotency
from jobs.store.jobs.idempotency import StoredResponse
from jobs.store.jobs.insert import copy_items, insert_jobs
from jobs.store.jobs.read import JobRow
from jobs.store.notifier import WorkNotifier
from jobs.store.tenancy import act
from jobs.usecases.submit import Submission, count, store

Outcome: TypeAlias = JobRow | StoredResponse | Exception
"""A job's row, the response that its Idempotency-Key has, or the error that it is refused with."""


def fits(database: Database, submission: Submission) -> bool:
    """Returns True if a job can share a transaction: it is within its tenant's limits by far, so
    that nobody waits for sums or locks of that tenant."""
    job = submission.job
    more_bytes = job.input_bytes + job.own_bytes
    return quota.reserve(
        database, job.tenant, job.limits, job.model.name, submission.intake.total, more_bytes
    )


def store_together(
    database: Database, submissions: Sequence[Submission], notifier: WorkNotifier
) -> list[Outcome]:
    """Stores jobs that `fits` has admitted, and closes them; returns their outcomes in order.

    An error of one leaves the others alone: where the transaction fails before its commit, each
    job is stored in its own. While the database is away all fail.
    """
    try:
        outcomes = _try_together(database, submissions)
    except CONNECTION_ERRORS as error:
        return [error] * len(submissions)
    except Exception:
        return [_try_alone(database, each, notifier) for each in submissions]
    finally:
        for submission in submissions:
            submission.close()
    notifier.notify()
    for submission, outcome in zip(submissions, outcomes, strict=True):
        if isinstance(outcome, JobRow):
            count(submission)
    return outcomes


def _try_alone(database: Database, submission: Submission, notifier: WorkNotifier) -> Outcome:
    try:
        return store(database, submission, notifier)
    except Exception as error:
        return error


def _try_together(database: Database, submissions: Sequence[Submission]) -> list[Outcome]:
    outcomes: dict[Submission, Outcome] = {}
    # Tenants in the order of their names: two processes never wait for each other.
    of_tenants = groupby(sorted(submissions, key=_tenant), key=_tenant)
    with database.begin() as tx:
        for tenant, its in of_tenants:
            act(tx, tenant)
            outcomes |= _of_tenant(tx, tenant, list(its))
        for submission in submissions:
            submission.intake.keep()
    return [outcomes[each] for each in submissions]


def _tenant(submission: Submission) -> str:
    return submission.job.tenant


def _of_tenant(tx: Tx, tenant: str, submissions: Sequence[Submission]) -> dict[Submission, Outcome]:
    """Stores the jobs of one tenant, which the transaction names."""
    outcomes: dict[Submission, Outcome] = {}
    for submission in submissions:
        if submission.claim and (found := _lock_key(tx, submission.claim)):
            outcomes[submission] = found
    new = [each for each in submissions if each not in outcomes]
    if new and spend.cap_reached(tx, tenant):
        return outcomes | {each: SpendCap() for each in new}
    if new:
        copy_items(tx, [(each.job, each.items) for each in new])
        rows = insert_jobs(tx, [(each.job, each.items) for each in new])
        for submission, row in zip(new, rows, strict=True):
            if submission.claim:
                idempotency.store(tx, submission.claim, row.id, submission.answer(row))
            outcomes[submission] = row
    return outcomes


def _lock_key(tx: Tx, claim: Claim) -> Outcome | None:
    """Locks an Idempotency-Key; returns its outcome where another request has it."""
    if not idempotency.try_lock(tx, claim):
        return IdempotencyKeyInFlight()
    try:
        return idempotency.find(tx, claim)
    except (IdempotencyKeyReused, JobDeleted) as error:
        return error
