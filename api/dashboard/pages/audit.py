"""Page of the audit log."""

from typing import Annotated
from urllib.parse import urlencode

import orjson
from fastapi import Query, Response

from api.dashboard.data.job_filter import Text
from api.dashboard.data.time_range import Ranged
from api.dashboard.rendering import layout, page_router
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import audit

router = page_router.router()
_ROWS = 100


@router.get("/audit")
def read_audit(
    page: layout.AdminPage,
    range: Ranged,
    actor: Text = "",
    act: Text = "",
    target: Text = "",
    tenant: Text = "",
    after: Annotated[int | None, Query(ge=0, lt=1 << 63)] = None,
) -> Response:
    """Shows the audit log, filtered."""
    who = tenant or EVERYBODY
    with page.context.acting(who) as tx:
        rows = audit.page(
            tx, who, after=after, limit=_ROWS + 1, actor=actor, act=act, target=target,
            since=range.start, until=range.end,
        )  # fmt: skip
    filters = {"actor": actor, "act": act, "target": target, "tenant": tenant}
    given = {name: value for name, value in filters.items() if value}
    return page.render(
        "audit.html", filters=filters, after=after, range=range, at_any_time=urlencode(given),
        query=urlencode(given | dict(range.pairs)),
        entries=[(row, orjson.loads(row.detail)) for row in rows[:_ROWS]],
        next=rows[_ROWS - 1].id if len(rows) > _ROWS else None,
    )  # fmt: skip
