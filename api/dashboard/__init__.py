"""/dashboard: what runs, what is stuck and why, as pages that are made here and need nothing from
elsewhere. What they show and do is what the API shows and lets do, by the same scopes."""

from fastapi import FastAPI

from api.dashboard.auth import sign_in
from api.dashboard.data.single_flight import SingleFlight
from api.dashboard.pages import (
    audit,
    bulk_actions,
    item,
    job,
    jobs,
    keys,
    models,
    overview,
    tenants,
    webhooks,
    workers,
)
from api.dashboard.rendering import assets, page_router


def install(app: FastAPI) -> None:
    """Serves the pages, and what they are made of."""
    app.state.patience = SingleFlight()
    assets.install(app)
    of_work = (jobs, bulk_actions, item, job)  # `jobs/all/…` before `jobs/{job_id}/…`
    for module in (overview, *of_work, models, workers, tenants, keys, webhooks, audit, sign_in):
        app.include_router(module.router)
    app.include_router(page_router.nowhere)
