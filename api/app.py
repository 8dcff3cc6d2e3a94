"""The application: routes, one error handler, and what they share."""

import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from api import errors, openapi
from api.context import Context
from api.gateway import CallGateway
from api.routes import calls, health, jobs, results, submissions, webhooks
from api.schemas import Problem
from jobs import registry
from jobs.settings import Settings
from jobs.store import db

_CONNECTIONS = 10
_SWITCH_S = 0.0005
_PROBLEM: dict[str, Any] = {
    "model": Problem,
    "description": "What went wrong, as RFC 9457 has it",
    "content": {"application/problem+json": {}},
}
_STATUSES = (400, 404, 409, 413, 415, 422, 500, 503, 504)


def create_app(settings: Settings) -> FastAPI:
    """The api of one configuration; stateless, as many processes as you like."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database = db.connect(settings.database_url, pool_size=_CONNECTIONS)
        gateway = CallGateway(settings.redis_url, settings.max_queued_calls)
        app.state.context = Context(settings, registry.load(settings.models), database, gateway)
        gateway.start()
        # What is here now stays: a full collection needn't walk it in the middle of a call.
        gc.collect()
        gc.freeze()
        yield
        await gateway.stop()
        database.dispose()

    app = FastAPI(
        title="Millrace",
        version="0.1.0",
        lifespan=lifespan,
        responses=dict.fromkeys(_STATUSES, _PROBLEM),
    )
    errors.install(app)
    openapi.install(app)
    for module in (calls, submissions, jobs, results, webhooks, health):
        app.include_router(module.router)
    return app


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT; requests in hand are finished."""
    # A thread that comes back from the database waits this long for the GIL, not ten times it.
    sys.setswitchinterval(_SWITCH_S)
    # uvicorn raises the signal that ended it once more, when it is done: that is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=10,
        timeout_keep_alive=75,
    )
