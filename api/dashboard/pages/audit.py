"""Page of the audit log."""

from typing import Annotated
from urllib.parse import urlencode

import orjson
from fastapi import Query, Response

from api.dashboard.data.job_filter import Moment, Text, moment
from api.dashboard.rendering import layout, page_router
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import audit

router = page_router.router()
_ROWS = 100


@router.get("/audit")
def read_audit(
    page: layout.AdminPage,
    actor: Text = "",
    act: Text = "",
    target: Text = "",
    tenant: Text = "",
    since: Moment = "",
    until: Moment = "",
    after: Annotated[int | None, Query(ge=0, lt=1 << 63)] = None,
) -> Response:
    """Shows the audit log, filtered."""
    who = tenant or EVERYBODY
    with page.context.acting(who) as tx:
        rows = audit.page(
            tx, who, after=after, limit=_ROWS + 1, actor=actor, act=act, target=target,
            since=moment("since", since), until=moment("until", until),
        )  # fmt: skip
    names = ("actor", "act", "target", "tenant", "since", "until")
    values = (actor, act, target, tenant, since, until)
    filters = dict(zip(names, values, strict=True))
    return page.render(
        "audit.html", filters=filters, after=after,
        query=urlencode({name: value for name, value in filters.items() if value}),
        entries=[(row, orjson.loads(row.detail)) for row in rows[:_ROWS]],
        next=rows[_ROWS - 1].id if len(rows) > _ROWS else None,
    )  # fmt: skip
