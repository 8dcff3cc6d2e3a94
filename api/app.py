"""The application: routes, one error handler, and what they share."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from api import dashboard
from api.auth import bind_check
from api.auth.authenticator import Authenticator
from api.compat import oip
from api.compat.anthropic import batches as message_batches
from api.compat.openai import batches as openai_batches
from api.compat.openai import embeddings
from api.compat.openai import files as openai_files
from api.compat.openai import models as openai_models
from api.context import Context
from api.dashboard.rendering.live_updates import LiveUpdates
from api.docs import openapi, swagger
from api.gateway.call_log import CallLog
from api.gateway.gateway import CallGateway
from api.gateway.redis_pipeline import RedisPipeline
from api.gateway.response_cache import ResponseCache
from api.http import bodies, errors, security
from api.http.connection import bounded
from api.http.idempotency import Uploads
from api.http.request_id import request_id, stamped
from api.middleware import tracing
from api.middleware.metrics import CountedResponse
from api.routes import calls, health, why
from api.routes.admin import audit, keys, limits, tenants, usage, workers
from api.routes.jobs import events as event_routes
from api.routes.jobs import jobs, results, submit, webhooks
from api.schemas.common import Problem
from api.services import loop_lag
from api.services.diagnostics import DiagnosticsService
from api.services.ingest_pool import IngestPool
from api.services.job_watcher import JobWatcher
from api.services.models_watcher import follow
from api.services.reports import Reports
from api.services.resources import Resources
from jobs.blobs.payloads import Payloads
from jobs.errors import Malformed
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.telemetry.metrics import exposition, metrics, record
from jobs.telemetry.tracing import export
from jobs.telemetry.tracing import spans as telemetry
from jobs.version import VERSION

_CONNECTIONS = 10
MOST_PARAMETERS = 64
"""Of a query."""
_SPOOLED = {submit.PATH, openai_files.PATH, openai_batches.PATH, message_batches.PATH}
"""Paths of those that ask who it is first, and spool what they read."""
_SWITCH_S = 0.0005
_SILENT_S = 5.0  # a connection for reports is given up then
_PROBLEM: dict[str, Any] = {
    "model": Problem,
    "description": "What went wrong, as RFC 9457 has it",
    "content": {"application/problem+json": {}},
}
_STATUSES = (400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 500, 503, 504)


def create_app(settings: Settings) -> FastAPI:
    """The api of one configuration; stateless, as many processes as you like."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database = db.connect(settings.database_url, pool_size=_CONNECTIONS, role=db.API)
        gateway = CallGateway(settings.redis_url, settings.max_queued_calls)
        events = JobWatcher(database)
        kept = ResponseCache(settings.redis_url, settings.call_idempotency_s)
        file, payloads = (
            ModelsFile(settings.models),
            Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint),
        )
        ingest, credentials = IngestPool(settings), Authenticator(settings)
        about = {"host": socket.gethostname(), "pid": os.getpid(), "url": settings.url}
        aside = RedisPipeline(settings.redis_url, _SILENT_S)  # calls don't wait for what it carries
        reports = Reports(aside, gateway.name, about, settings.metrics_window_s)
        records = CallLog(aside, on=settings.metrics)
        explainer = DiagnosticsService(Resources(settings, file, database, payloads), reports)
        app.state.context = Context(
            settings, file, database, payloads, gateway, ingest, events, kept, Uploads(),
            credentials, reports, records, explainer,
        )  # fmt: skip
        app.state.lives = lives = LiveUpdates()
        following = [asyncio.create_task(follow(file))]
        gateway.start()
        events.start()
        credentials.start()
        records.start()
        export.start(settings, "api")
        if settings.metrics:
            metrics.CALLS_WAITING.set_function(lambda: gateway.in_flight)
            following.append(asyncio.create_task(loop_lag.watch()))
            reports.start()
        # What is here now stays: a full collection needn't walk it in the middle of a call.
        gc.collect()
        gc.freeze()
        yield
        for task in following:
            task.cancel()
        ingest.stop()
        await events.stop()
        await lives.stop()
        await records.stop()
        await reports.stop()
        await gateway.stop()
        await kept.stop()
        await credentials.stop()
        await run_in_threadpool(telemetry.stop)
        database.dispose()

    app = _Api(
        title="Millrace",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=dict.fromkeys(_STATUSES, _PROBLEM),
    )
    errors.install(app)
    openapi.install(app)
    swagger.install(app)
    ours = (
        calls,
        embeddings,
        submit,
        jobs,
        results,
        event_routes,
        webhooks,
        usage,
        keys,
        tenants,
        limits,
        audit,
        workers,
        health,
        why,
        oip,
        openai_files,
        openai_batches,
        openai_models,
        message_batches,
    )
    for module in ours:
        app.include_router(module.router)
    dashboard.install(app)
    return app


class _Api(FastAPI):
    """Calls take a shorter way than everything else: to the function that FastAPI would run,
    without all that it does before and after. That is most of the time that a call takes here."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
        elif (span := tracing.arriving(scope)).context:
            await tracing.serve(span, self._count, scope, receive, send)
        else:
            await self._count(scope, receive, send)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, serve = _short_way(scope)
        answer = CountedResponse(scope, send, route)
        try:
            if serve:
                await serve(scope, receive, answer.send, self.state.context)
            else:
                await self._answer(scope, receive, answer.send)
        finally:
            answer.count()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"].count(b"&") >= MOST_PARAMETERS:
            error = Malformed(f"the query has more than {MOST_PARAMETERS} parameters")
            await errors.error_response(error, request_id(scope), scope["path"])(
                scope, receive, send
            )
        else:
            if scope["path"] not in _SPOOLED:
                receive = bodies.small(scope, receive)
            await super().__call__(scope, receive, stamped(scope, send))


_Serve = Callable[[Scope, Receive, Send, Context], Awaitable[None]]


def _short_way(scope: Scope) -> tuple[str, _Serve | None]:
    """The route of a call, and who serves it."""
    if scope["method"] == "POST":
        if scope["path"] == calls.PATH:
            return calls.PATH, calls.serve
        if scope["path"] == embeddings.PATH:
            return embeddings.PATH, embeddings.serve
        if route := oip.route_of(scope["path"]):
            return route, oip.serve
    return "", None


class _Server(uvicorn.Server):
    """Ends the streams of events before it waits for requests in hand: they have no end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.context.events.close()  # type: ignore[union-attr]
        self.config.app.state.lives.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT; requests in hand are finished.

    Raises SettingsError where it must not listen on that address.
    """
    _check_door(settings)
    record.begin("api", settings.metrics)
    exposition.listen(settings)
    # A thread that comes back from the database waits this long for the GIL, not ten times it.
    sys.setswitchinterval(_SWITCH_S)
    # uvicorn raises the signal that ended it once more, when it is done: that is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=bounded(settings.slow_client_s),  # type: ignore[arg-type]
        ws="none",
        log_config=None,  # jobs/telemetry/logs.py has it
        headers=security.headers(settings),
        **security.tls(settings),
        access_log=False,
        proxy_headers=False,  # who is in front of us changes no answer
        log_level="warning",
        timeout_graceful_shutdown=10,
        timeout_keep_alive=75,
    )
    server = _Server(config)
    server.run()
    if not server.started:
        sys.exit(3)  # as uvicorn.run does


def _check_door(settings: Settings) -> None:
    database = db.connect(settings.database_url, pool_size=1, role=db.API)
    try:
        bind_check.check(settings, database)
    finally:
        database.dispose()
