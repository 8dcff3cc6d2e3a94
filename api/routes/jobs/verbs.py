"""The verbs of a job, as every door of the api does them: in a transaction of its tenant's, with
what must hold before, and noted."""

from collections.abc import Callable, Mapping
from typing import Literal
from uuid import UUID

from fastapi import Request

from api.auth import audit
from api.context import Context
from api.routes.jobs.lookup import find_job
from jobs.identity import Caller
from jobs.states import TERMINAL
from jobs.store.billing import quota, spend
from jobs.store.db import Tx
from jobs.store.jobs import verbs
from jobs.store.jobs.read import JobRow
from jobs.usecases.cancel import cancel as cancel_job

Verb = Literal["cancel", "pause", "resume", "retry", "delete"]

# What is done in one transaction; a cancel takes several.
_AT_ONCE: Mapping[Verb, Callable[[Tx, UUID, str], str]] = {
    "pause": verbs.pause,
    "resume": verbs.resume,
    "retry": verbs.retry,
    "delete": verbs.delete,
}


def _whatever(before: str) -> None:
    pass


def perform(
    request: Request, shared: Context, caller: Caller, verb: Verb, job_id: str,
    check: Callable[[str], None] = _whatever,
) -> str:  # fmt: skip
    """Returns the state that the job was in; in one that the verb doesn't fit nothing is done.
    check: is told that state, in the transaction of the verb: what it raises leaves the job as it
    was. Raises NotFound, Conflict, QuotaExceeded, SpendCap."""

    def note(tx: Tx, before: str) -> None:
        check(before)
        audit.record(tx, request, caller, f"job.{verb}", job_id, job.tenant_id, was=before)

    with find_job(shared, caller, job_id) as (tx, job):
        if verb != "cancel":
            if verb == "retry":
                _refuse_anew(caller, tx, job)
            before = _AT_ONCE[verb](tx, job.id, job.tenant_id)
            note(tx, before)
            return before
    cancel_job(shared.database, job.id, job.tenant_id, note)
    return str(job.state)


def _refuse_anew(caller: Caller, tx: Tx, job: JobRow) -> None:
    """That is new work. What operators may queue themselves says nothing of others' jobs."""
    spend.check_cap(tx, job.tenant_id)
    if caller.tenant == job.tenant_id and job.state in TERMINAL:
        again = job.failed + job.cancelled + job.expired
        quota.check(tx, caller.tenant, caller.limits, job.model, again, 0)
