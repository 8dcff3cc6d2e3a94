"""Dashboard: server-rendered pages under /dashboard, without external assets.

They show and do what the API does, under the same scopes.
"""

from fastapi import FastAPI

from api.dashboard.auth import sign_in
from api.dashboard.pages import (
    audit,
    keys,
    overview,
    pools,
    tenants,
    webhooks,
    worker_logs,
    workers,
)
from api.dashboard.pages.calls import call, calls
from api.dashboard.pages.jobs import bulk_actions, item, job, jobs, new, resubmit
from api.dashboard.pages.models import playground, registry, rollouts, served
from api.dashboard.rendering import assets, page_router


def install(app: FastAPI) -> None:
    """Installs the pages and their assets."""
    assets.install(app)
    # `jobs/new` and `jobs/all/…` before `jobs/{job_id}/…`
    job_pages = (jobs, new, bulk_actions, item, resubmit, job)
    for module in (
        overview,
        *job_pages,
        calls,
        call,
        playground,
        served,
        registry,
        rollouts,
        pools,
        workers,
        worker_logs,
        tenants,
        keys,
        webhooks,
        audit,
        sign_in,
    ):
        app.router.routes.extend(module.router.routes)
    app.router.routes.extend(page_router.not_found.routes)
