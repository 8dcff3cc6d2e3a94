"""What the routes of jobs share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated
from uuid import UUID

from fastapi import Path, Request

from api.schemas import examples
from api.services.resources import Resources
from jobs import ids
from jobs.api_keys import TENANT
from jobs.errors import NotFound
from jobs.explain.items import Before
from jobs.identity import Caller
from jobs.store.db import Tx
from jobs.store.jobs import read
from jobs.store.jobs.read import JobRow
from jobs.store.monitoring import diagnostics
from jobs.store.tenancy import EVERYBODY, act

PREFIXES = ("job", "batch", "msgbatch")
"""Of a job's id, by the door that shows it: the rest is the same, and each is taken everywhere."""
JOB_ID = ids.pattern(*PREFIXES)
TENANT_OR_ALL = rf"{TENANT}|^\*$"
JobId = Annotated[
    str, Path(description="job_…, or batch_…", pattern=JOB_ID, examples=[examples.JOB_ID])
]


@contextmanager
def find_job(
    shared: Resources, caller: Caller, job_id: str, called: str = "job"
) -> Iterator[tuple[Tx, JobRow]]:
    """The job, and a transaction that sees its tenant's rows alone: the caller's own or, for an
    operator, whoever's it is. Raises NotFound."""
    id = ids.parse(PREFIXES, job_id)
    with shared.acting(caller.tenant) as tx:
        row = read.get(tx, caller.tenant, id) if id else None
        if row is None and id and caller.may("operate"):
            row = _anybodys(tx, id)
        if row is None:
            raise NotFound(f"there is no {called} {job_id}")
        yield tx, row


def _anybodys(tx: Tx, id: UUID) -> JobRow | None:
    act(tx, EVERYBODY)
    tenant = read.owner(tx, id)
    act(tx, tenant or "")
    return read.get(tx, tenant, id) if tenant else None


def before_of(tx: Tx, caller: Caller, job: JobRow) -> Before:
    """What came before a job, as far as the caller is to know it. Leaves the transaction to its
    tenant."""
    own = diagnostics.count_own_ahead(tx, job)
    if not caller.may("operate"):
        return Before(own, None)
    act(tx, EVERYBODY)
    others = diagnostics.count_others_ahead(tx, job)
    act(tx, job.tenant_id)
    return Before(own, others)


def is_retry(request: Request) -> bool:
    """Whether OpenAI's or Anthropic's package sends it again: they give no Idempotency-Key."""
    return request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
