"""/dashboard: what runs, what is stuck and why, as pages that are made here and need nothing from
elsewhere. What they show and do is what the API shows and lets do, by the same scopes."""

from fastapi import FastAPI

from api.dashboard import fleet, models, overview, routes, signing_in, static


def install(app: FastAPI) -> None:
    """Serves the pages, and what they are made of."""
    static.install(app)
    for module in (overview, models, fleet, signing_in):
        app.include_router(module.router)
    app.include_router(routes.nowhere)
