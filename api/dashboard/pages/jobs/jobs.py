"""Page of jobs, filtered by its URL, with live counts of states."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Annotated

from fastapi import Query, Response

from api.dashboard.data.adaptive_cache import AdaptiveCache
from api.dashboard.data.job_filter import Filtered, tenant_scope
from api.dashboard.rendering import layout, page_router
from api.routes.jobs.lookup import JOB_ID, PREFIXES
from jobs import ids
from jobs.states import JOB_STATES, JobState
from jobs.store.jobs import search
from jobs.store.jobs.search import MOST_COUNTED
from jobs.views import jobs

router = page_router.router()
ROWS = 50
_counts: AdaptiveCache[Mapping[JobState, int]] = AdaptiveCache()


@router.get("/jobs")
def list_jobs(
    page: layout.ReaderPage,
    filters: Filtered,
    after: Annotated[str, Query(pattern=rf"^$|{JOB_ID}")] = "",
) -> Response:
    """Lists jobs."""
    tenant = tenant_scope(page.caller, filters.tenant)
    last = ids.parse(PREFIXES, after)
    with page.context.acting(tenant) as tx:
        rows = search.page(tx, tenant, filters.filter, after=last, limit=ROWS + 1)
        if after or len(rows) > ROWS:
            load = partial(search.counts, tx, tenant, filters.filter)
            counts = _counts.get((tenant, filters.filter), load)
        else:  # the page has all of them
            counts = Counter(row.state for row in rows)
    total = sum(counts.values())
    models = sorted({name for model in page.context.models for name in (model.name, model.key)})
    return page.render(
        "jobs.html", filters=filters, states=JOB_STATES, counts=counts,
        jobs=[(row, jobs.job_object(row)) for row in rows[:ROWS]], total=total,
        is_exact=total <= MOST_COUNTED, models=models, after=after,
        next=ids.show("job", rows[ROWS - 1].id) if len(rows) > ROWS else "",
    )  # fmt: skip
