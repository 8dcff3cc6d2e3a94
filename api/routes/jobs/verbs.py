"""Verbs of a job, as all APIs and the dashboard perform them: in a transaction of its tenant, with
their preconditions, and audited."""

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

# Verbs of one transaction; a cancel takes several.
_SINGLE_TRANSACTION: Mapping[Verb, Callable[[Tx, UUID, str], str]] = {
    "pause": verbs.pause,
    "resume": verbs.resume,
    "retry": verbs.retry,
    "delete": verbs.delete,
}


def _accept_any(before: str) -> None:
    pass


def perform(
    request: Request, context: Context, caller: Caller, verb: Verb, job_id: str,
    check: Callable[[str], None] = _accept_any,
) -> str:  # fmt: skip
    """Performs a verb. Returns the job's state before; a verb that doesn't fit that state does
    nothing.

    `check` gets that state in the verb's transaction; what it raises leaves the job unchanged.
    Raises NotFound, Conflict, QuotaExceeded, SpendCap.
    """

    def note(tx: Tx, before: str) -> None:
        check(before)
        audit.record(tx, request, caller, f"job.{verb}", job_id, job.tenant_id, was=before)

    with find_job(context, caller, job_id) as (tx, job):
        if verb != "cancel":
            if verb == "retry":
                _check_retry(caller, tx, job)
            before = _SINGLE_TRANSACTION[verb](tx, job.id, job.tenant_id)
            note(tx, before)
            return before
    cancel_job(context.database, job.id, job.tenant_id, note)
    return str(job.state)


def _check_retry(caller: Caller, tx: Tx, job: JobRow) -> None:
    """Checks spend and quota, since a retry is new work.

    An operator's own quota does not apply to other tenants' jobs.
    """
    spend.check_cap(tx, job.tenant_id)
    if caller.tenant == job.tenant_id and job.state in TERMINAL:
        items = job.failed + job.cancelled + job.expired
        archived = items * verbs.ARCHIVED_BYTES
        quota.check(tx, caller.tenant, caller.limits, job.model, items, archived)
