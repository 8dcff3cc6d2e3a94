"""The page of jobs: filtered by its URL, with counts of each state, live."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Annotated

from fastapi import Query, Request, Response

from api.context import Shared
from api.dashboard import frame, routes
from api.dashboard.looking import Asked, whose
from api.dashboard.remembering import Remembered
from api.dashboard.viewers import Viewing
from api.routes.common import JOB_ID, PREFIXES
from jobs import ids, views
from jobs.states import JOB_STATES, JobState
from jobs.store import browsing
from jobs.store.browsing import MOST_COUNTED

router = routes.router()
ROWS = 50
_counts: Remembered[Mapping[JobState, int]] = Remembered()


@router.get("/jobs")
def list_jobs(
    request: Request,
    shared: Shared,
    viewer: Viewing,
    asked: Asked,
    after: Annotated[str, Query(pattern=rf"^$|{JOB_ID}")] = "",
) -> Response:
    tenant = whose(viewer, asked.tenant)
    last = ids.parse(PREFIXES, after)
    with shared.acting(tenant) as tx:
        rows = browsing.page(tx, tenant, asked.filter, after=last, limit=ROWS + 1)
        if after or len(rows) > ROWS:
            look = partial(browsing.counts, tx, tenant, asked.filter)
            counts = _counts.of((tenant, asked.filter), look)
        else:  # the page has all of them
            counts = Counter(row["state"] for row in rows)
    total = sum(counts.values())
    return frame.page(
        request, "jobs.html", viewer=viewer, asked=asked, states=JOB_STATES, counts=counts,
        jobs=[(row, views.job_object(row)) for row in rows[:ROWS]],
        total=total, is_exact=total <= MOST_COUNTED, models=_models(shared), after=after,
        next=ids.show("job", rows[ROWS - 1]["id"]) if len(rows) > ROWS else "",
    )  # fmt: skip


def _models(shared: Shared) -> list[str]:
    return sorted({name for model in shared.models for name in (model.name, model.key)})
