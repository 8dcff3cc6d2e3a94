"""What the routes of jobs share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import Path, Request, Response
from sqlalchemy import RowMapping

from api import bodies, examples
from api.resources import Resources
from jobs import ids
from jobs.errors import NotFound
from jobs.explain.items import Before
from jobs.identity import Caller
from jobs.keys import TENANT
from jobs.store import reading, sight
from jobs.store.db import Tx
from jobs.store.tenancy import EVERYBODY, act

PREFIXES = ("job", "batch", "msgbatch")
"""Of a job's id, by the door that shows it: the rest is the same, and each is taken everywhere."""
JOB_ID = ids.pattern(*PREFIXES)
TENANT_OR_ALL = rf"{TENANT}|^\*$"
JobId = Annotated[
    str, Path(description="job_…, or batch_…", pattern=JOB_ID, examples=[examples.JOB_ID])
]


@contextmanager
def job_of(
    shared: Resources, caller: Caller, job_id: str, called: str = "job"
) -> Iterator[tuple[Tx, RowMapping]]:
    """The job, and a transaction that sees its tenant's rows alone: the caller's own or, for an
    operator, whoever's it is. Raises NotFound."""
    id = ids.parse(PREFIXES, job_id)
    with shared.acting(caller.tenant) as tx:
        row = reading.get(tx, caller.tenant, id) if id else None
        if row is None and id and caller.may("operate"):
            row = _anybodys(tx, id)
        if row is None:
            raise NotFound(f"there is no {called} {job_id}")
        yield tx, row


def _anybodys(tx: Tx, id: UUID) -> RowMapping | None:
    act(tx, EVERYBODY)
    tenant = reading.owner(tx, id)
    act(tx, tenant or "")
    return reading.get(tx, tenant, id) if tenant else None


def before_of(tx: Tx, caller: Caller, job: RowMapping) -> Before:
    """What came before a job, as far as the caller is to know it. Leaves the transaction to its
    tenant."""
    own = sight.own_before(tx, job)
    if not caller.may("operate"):
        return Before(own, None)
    act(tx, EVERYBODY)
    others = sight.others_before(tx, job)
    act(tx, job["tenant_id"])
    return Before(own, others)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type=bodies.JSON)


def is_retry(request: Request) -> bool:
    """Whether OpenAI's or Anthropic's package sends it again: they give no Idempotency-Key."""
    return request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
