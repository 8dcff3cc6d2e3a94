"""Lookup of a job, and parameters that routes of jobs share."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from uuid import UUID

from fastapi import Path, Request

from api.auth.audit import payload_reads
from api.schemas import common
from api.services.resources import Resources
from jobs import ids
from jobs.api_keys import TENANT
from jobs.errors import NotFound
from jobs.explain.items import EarlierJobs
from jobs.identity import Caller
from jobs.store.db import Tx
from jobs.store.jobs import read
from jobs.store.jobs.read import JobRow
from jobs.store.monitoring import diagnostics
from jobs.store.tenancy import EVERYBODY, act

#: Prefixes of a job's id, by the API that shows it; each is accepted everywhere.
PREFIXES = ("job", "batch", "msgbatch", "resp")
JOB_ID = ids.pattern(*PREFIXES)
TENANT_OR_ALL = rf"{TENANT}|^\*$"
JobId = Annotated[
    str, Path(description="job_…, or batch_…", pattern=JOB_ID, examples=[common.JOB_ID])
]


def parse_labels(given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parses labels `key:value`, for a Filter."""
    parted = (label.partition(":") for label in given)
    return tuple((key, value) for key, _, value in parted)


@contextmanager
def find_job(
    resources: Resources, caller: Caller, job_id: str, noun: str = "job", dialect: str = ""
) -> Iterator[tuple[Tx, JobRow]]:
    """Yields a transaction that sees the rows of the job's tenant only, and the job: the caller's
    own or, for an operator, any tenant's. Raises NotFound, also for a job of another API than
    `dialect`."""
    id = ids.parse(PREFIXES, job_id)
    with resources.acting(caller.tenant) as tx:
        row = read.get(tx, caller.tenant, id) if id else None
        if row is None and id and caller.may("operate"):
            row = _any_tenants_job(tx, id)
        if row is None or (dialect and row.dialect != dialect):
            raise NotFound(f"there is no {noun} {job_id}")
        yield tx, row


@contextmanager
def read_job(
    request: Request, resources: Resources, caller: Caller, job_id: str, noun: str = "job",
    dialect: str = "", **detail: Any,
) -> Iterator[tuple[Tx, JobRow]]:  # fmt: skip
    """Yields what `find_job` does, to be shown with its payloads: a read of another tenant's job
    is recorded in the audit log, with `detail`, before anything of it is sent."""
    with find_job(resources, caller, job_id, noun, dialect) as (tx, job):
        is_recorded = False
        if job.tenant_id != caller.tenant:
            id = ids.show("job", job.id)
            is_recorded = payload_reads.record(tx, request, caller, id, job.tenant_id, **detail)
        yield tx, job
    if is_recorded:
        payload_reads.remember(request, caller)


def _any_tenants_job(tx: Tx, id: UUID) -> JobRow | None:
    act(tx, EVERYBODY)
    tenant = read.owner(tx, id)
    act(tx, tenant or "")
    return read.get(tx, tenant, id) if tenant else None


def work_ahead(tx: Tx, caller: Caller, job: JobRow) -> EarlierJobs:
    """Returns what is queued before a job, as far as the caller may know it. Leaves the
    transaction with the job's tenant."""
    own_work = diagnostics.count_own_ahead(tx, job)
    if not caller.may("operate"):
        return EarlierJobs(own_work, None)
    act(tx, EVERYBODY)
    others = diagnostics.count_others_ahead(tx, job)
    act(tx, job.tenant_id)
    return EarlierJobs(own_work, others)


def is_retry(request: Request) -> bool:
    """Returns True if OpenAI's or Anthropic's package retries a request; it sends no
    Idempotency-Key."""
    return request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
