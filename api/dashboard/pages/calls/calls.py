"""Page of calls that ended within the last hour."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Query, Response
from redis import RedisError

from api.context import ContextDep
from api.dashboard.auth.viewer import Somebody
from api.dashboard.data.call_filter import CallFields, Fields
from api.dashboard.rendering import layout, page_router
from api.routes import ended_calls
from api.services.call_list import CallPage
from jobs import ids
from jobs.calls.records import GROUPS
from jobs.store.tenancy import EVERYBODY

router = page_router.router()

_ROWS = 50
_After = Annotated[str, Query(pattern=f"^$|{ids.pattern('call')}")]
CODES = (
    "succeeded", "cancelled", *GROUPS, "overloaded", "predicted_wait", "no_worker",
    "quota_exceeded", "deadline_passed", "engine_error", "worker_lost", "too_long",
)  # fmt: skip
"""Outcomes that the filter suggests."""


@dataclass(frozen=True, slots=True)
class _Listed:
    fields: CallFields
    page: CallPage | None  #: None: Redis doesn't answer


async def _load(
    context: ContextDep, viewer: Somebody, fields: Fields, after: _After = ""
) -> _Listed:
    caller = viewer.caller
    everybody = EVERYBODY if caller.may("operate") else None
    tenant = ended_calls.tenant_scope(caller, fields.tenant or everybody)
    try:
        page = await ended_calls.page_of(context, fields.filter(tenant), after or None, _ROWS)
    except (RedisError, TimeoutError):
        page = None
    return _Listed(fields, page)


@router.get("/calls")
def list_calls(
    page: layout.ReaderPage,
    listed: Annotated[_Listed, Depends(_load)],
    after: _After = "",
    id: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Lists calls; with an id, leads to the page of that call."""
    if id:
        return layout.redirect(f"{layout.PREFIX}/calls/{quote(id.strip(), safe='')}")
    models = page.context.models_of(page.caller.tenant)
    return page.render(
        "calls.html",
        filters=listed.fields,
        listed=listed.page,
        after=after,
        codes=CODES,
        models=sorted({model.name for model in models}),
    )
