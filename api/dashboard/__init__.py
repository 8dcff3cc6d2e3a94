"""/dashboard: what runs, what is stuck and why, as pages that are made here and need nothing from
elsewhere. What they show and do is what the API shows and lets do, by the same scopes."""

from fastapi import FastAPI

from api.dashboard import (
    audit,
    fleet,
    items,
    job,
    jobs,
    keys,
    many,
    models,
    overview,
    routes,
    signing_in,
    static,
    tenants,
    webhooks,
)
from api.dashboard.patience import Patience


def install(app: FastAPI) -> None:
    """Serves the pages, and what they are made of."""
    app.state.patience = Patience()
    static.install(app)
    of_work = (jobs, many, items, job)  # `jobs/all/…` before `jobs/{job_id}/…`
    for module in (overview, *of_work, models, fleet, tenants, keys, webhooks, audit, signing_in):
        app.include_router(module.router)
    app.include_router(routes.nowhere)
