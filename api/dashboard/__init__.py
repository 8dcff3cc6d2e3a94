"""/dashboard: what runs, what is stuck and why, as pages that are made here and need nothing from
elsewhere. What they show and do is what the API shows and lets do, by the same scopes."""

from fastapi import FastAPI

from api.dashboard import (
    audit,
    items,
    job,
    jobs,
    keys,
    many,
    overview,
    routes,
    signing_in,
    static,
    tenants,
    webhooks,
)


def install(app: FastAPI) -> None:
    """Serves the pages, and what they are made of."""
    static.install(app)
    pages = (overview, jobs, many, items, job, tenants, keys, webhooks, audit, signing_in)
    for module in pages:  # `jobs/all/…` before `jobs/{job_id}/…`
        app.include_router(module.router)
    app.include_router(routes.nowhere)
