"""Calls that ended within the last hour, as a list."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.context import Context, ContextDep
from api.dependencies import Reader, require
from api.routes.jobs.lookup import TENANT_OR_ALL
from api.schemas.calls import EndedCallPage, ListedCall
from api.schemas.common import MODEL, NO_NUL
from api.services.call_list import CallPage
from jobs import ids
from jobs.calls.records import CallFilter, CallRecord
from jobs.errors import NotFound
from jobs.identity import Caller
from jobs.store.tenancy import EVERYBODY
from jobs.views.jobs import timestamp

router = APIRouter(tags=["calls"])


@router.get("/calls")
async def list_calls(
    context: ContextDep,
    caller: Reader,
    model: Annotated[
        str | None,
        Query(
            max_length=200, pattern=NO_NUL, description="NAME, or NAME@VERSION", examples=[MODEL]
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        Query(description="operators only: another tenant, or * for all", pattern=TENANT_OR_ALL),
    ] = None,
    outcome: Annotated[
        str | None,
        Query(
            max_length=100,
            pattern=NO_NUL,
            description="succeeded, cancelled, the code of an error, or `refused`: no worker got "
            "it; `late`: after its target or deadline; `failed`: any other error",
        ),
    ] = None,
    slower_ms: Annotated[
        float | None, Query(ge=0, le=1e9, description="calls that took longer, ms")
    ] = None,
    since: Annotated[datetime | None, Query(description="made at that time or later")] = None,
    until: Annotated[datetime | None, Query(description="made before")] = None,
    text: Annotated[
        str | None, Query(max_length=200, pattern=NO_NUL, description="part of the id")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[
        str | None, Query(description="`next` of the page before", pattern=ids.pattern("call"))
    ] = None,
) -> EndedCallPage:
    """Lists calls that ended within the last hour, newest first, without inputs and outputs. At
    high rates only failed calls and the slowest are recorded: `left_out` counts the others. A page
    may have few calls, or none, although there is a next one."""
    want = CallFilter(
        model=(model or "").strip(),
        tenant=tenant_scope(caller, tenant),
        outcome=(outcome or "").strip(),
        slower_ms=slower_ms,
        since=_utc(since),
        until=_utc(until),
        text=(text or "").strip(),
    )
    page = await page_of(context, want, after, limit)
    return EndedCallPage(
        data=[ListedCall.model_validate(call_object(call, caller)) for call in page.calls],
        next=page.next,
        left_out=page.left_out if caller.may("operate") else None,
    )


async def page_of(context: Context, want: CallFilter, after: str | None, limit: int) -> CallPage:
    """Returns calls. Raises NotFound where none are recorded, RedisError."""
    if not context.settings.metrics:
        raise NotFound("nothing is kept of calls: MILLRACE_METRICS is off")
    return await context.call_list.page(want, after, limit)


def tenant_scope(caller: Caller, tenant: str | None) -> str:
    """Returns the tenant whose calls are listed, "" for all: for operators any, else the caller's
    own. Raises Forbidden."""
    if tenant and tenant != caller.tenant:
        require(caller, "operate")
    tenant = tenant or caller.tenant
    return "" if tenant == EVERYBODY else tenant


def call_object(call: CallRecord, caller: Caller) -> dict[str, Any]:
    """Returns a call as a list shows it to a caller."""
    return {
        "id": call.id,
        "tenant": call.tenant,
        "model": call.model,
        "version": call.version,
        "job_class": call.job_class,
        "outcome": call.outcome,
        "late": call.is_late,
        "ended_at": timestamp(datetime.fromtimestamp(call.ended_at, UTC)),
        "target_ms": call.target_ms,
        "size": call.size,
        "units": call.units,
        "timing": call.timing,
        "worker": (call.worker or None) if caller.may("operate") else None,
    }


def _utc(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at and at.tzinfo is None else at
