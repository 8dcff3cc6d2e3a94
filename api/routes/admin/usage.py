"""Usage and its cost: sums of the ledger."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BeforeValidator

from api.context import ContextDep
from api.dependencies import Reader, require
from api.routes.jobs.lookup import TENANT_OR_ALL
from api.schemas.admin import Usage
from jobs import clock
from jobs.store.billing import usage
from jobs.store.billing.usage import BY, By
from jobs.store.tenancy import EVERYBODY
from jobs.views.device_cost import DevicePrice, device_prices
from jobs.views.usage import Report

router = APIRouter(tags=["usage"])
CSV = "text/csv"
_EXAMPLE = (
    "model,day,succeeded,failed,tokens,device_ms,amount,input_tokens,cached_tokens,output_tokens\n"
    "minilm,2026-11-20,998,2,18340,4750.2,0.4668,0,0,0\n"
)
_ONE = f"({'|'.join(BY)})"


def _day(text: str) -> date:
    """Parses a day; pydantic would take a number for seconds after 1970."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        raise ValueError("a day is written 2026-01-31")
    return date.fromisoformat(text)


async def device_prices_for(context: ContextDep, caller: Reader) -> Mapping[str, DevicePrice]:
    """Returns the prices of devices by model, for operators; nothing for others."""
    return device_prices(await context.reports.read()) if "operate" in caller.scopes else {}


DevicePrices = Annotated[Mapping[str, DevicePrice], Depends(device_prices_for)]
Day = Annotated[date, BeforeValidator(_day)]


@router.get(
    "/usage",
    response_model=Usage,
    response_model_exclude_unset=True,  # a group has only the columns of `by`
    responses={200: {"content": {CSV: {"schema": {"type": "string"}, "example": _EXAMPLE}}}},
)
def get_usage(
    request: Request,
    context: ContextDep,
    caller: Reader,
    prices: DevicePrices,
    by: Annotated[
        str, Query(pattern=rf"^({_ONE}(,{_ONE})*)?$", max_length=100, description=", ".join(BY))
    ] = "model,day",
    since: Annotated[
        Day | None,
        Query(alias="from", description="first day, UTC; default: the first of the month"),
    ] = None,
    until: Annotated[
        Day | None, Query(alias="to", description="end day, exclusive; default: tomorrow")
    ] = None,
    tenant: Annotated[
        str | None,
        Query(
            pattern=TENANT_OR_ALL,
            description="operators only: another one, or * for all, which is the default by tenant",
        ),
    ] = None,
    format: Annotated[
        str | None, Query(pattern="^(json|csv)$", description="default: by the Accept header")
    ] = None,
) -> Usage | Response:
    """Returns your own usage as sums; by tenant, operators get that of all tenants. `units` are of
    successful work, `device_ms` of all; `amount` is exact, by the prices of the time. Calls appear
    a minute or two after their response. Operators see by model what a million items cost in device
    time."""
    groups = _group_columns(by)
    is_of_all = "tenant" in groups and "operate" in caller.scopes
    target_tenant = tenant or (EVERYBODY if is_of_all else caller.tenant)
    if target_tenant != caller.tenant:
        require(caller, "operate")
    today = clock.now().date()
    first_day, end_day = since or today.replace(day=1), until or today + timedelta(days=1)
    with context.acting(target_tenant) as tx:
        rows = usage.sums(tx, target_tenant, groups, first_day, end_day)
    report = Report(groups, rows, context.models, prices)
    if format == "csv" or (format is None and CSV in request.headers.get("accept", "")):
        return StreamingResponse(report.csv_lines(), media_type=CSV)
    return Usage.model_validate(report.as_json())


def _group_columns(by: str) -> Sequence[By]:
    return [cast(By, name) for name in dict.fromkeys(by.split(",")) if name]
