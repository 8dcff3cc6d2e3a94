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

from api import bodies, dashboard, door, errors, lag, openapi, pages, security, tracing
from api.connection import bounded
from api.context import Context
from api.credentials import Credentials
from api.dashboard.live import Lives
from api.events import JobEvents
from api.explaining import Explainer
from api.gateway import CallGateway
from api.idempotency import Uploads
from api.ingest import Ingest
from api.kept import KeptAnswers
from api.measuring import Answer
from api.pipe import Pipe
from api.recording import CallRecords
from api.reports import Reports
from api.requests import request_id, stamped
from api.resources import Resources
from api.routes import (
    audit,
    calls,
    health,
    jobs,
    keys,
    limits,
    oip,
    results,
    submissions,
    tenants,
    usage,
    webhooks,
    why,
    workers,
)
from api.routes import events as event_routes
from api.routes.anthropic import batches as message_batches
from api.routes.openai import batches as openai_batches
from api.routes.openai import embeddings
from api.routes.openai import files as openai_files
from api.routes.openai import models as openai_models
from api.schemas import Problem
from api.serving import follow
from jobs.blobs.payloads import Payloads
from jobs.errors import Malformed
from jobs.models_file import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.telemetry import exposition, metrics, record
from jobs.telemetry import tracing as telemetry

_CONNECTIONS = 10
MOST_PARAMETERS = 64
"""Of a query."""
_SPOOLED = {submissions.PATH, openai_files.PATH, openai_batches.PATH, message_batches.PATH}
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
        events = JobEvents(database)
        kept = KeptAnswers(settings.redis_url, settings.call_idempotency_s)
        file, payloads = ModelsFile(settings.models), Payloads.of(settings)
        ingest, credentials = Ingest(settings), Credentials(settings)
        about = {"host": socket.gethostname(), "pid": os.getpid(), "url": settings.url}
        aside = Pipe(settings.redis_url, _SILENT_S)  # calls don't wait for what it carries
        reports = Reports(aside, gateway.name, about, settings.metrics_window_s)
        records = CallRecords(aside, on=settings.metrics)
        explainer = Explainer(Resources(settings, file, database, payloads), reports)
        app.state.context = Context(
            settings, file, database, payloads, gateway, ingest, events, kept, Uploads(),
            credentials, reports, records, explainer,
        )  # fmt: skip
        app.state.lives = lives = Lives()
        following = [asyncio.create_task(follow(file))]
        gateway.start()
        events.start()
        credentials.start()
        records.start()
        telemetry.start(settings, "api")
        if settings.metrics:
            metrics.CALLS_WAITING.set_function(lambda: gateway.in_flight)
            following.append(asyncio.create_task(lag.watch()))
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
        version="0.1.0",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=dict.fromkeys(_STATUSES, _PROBLEM),
    )
    errors.install(app)
    openapi.install(app)
    pages.install(app)
    ours = (
        calls,
        embeddings,
        submissions,
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
        answer = Answer(scope, send, route)
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
            await errors.answer_to(error, request_id(scope), scope["path"])(scope, receive, send)
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
        log_config=None,  # jobs/logs.py has it
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
        door.check(settings, database)
    finally:
        database.dispose()
