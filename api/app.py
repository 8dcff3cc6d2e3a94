"""FastAPI application: its routes, and the services that live as long as it does."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from api import background, dashboard
from api.auth.authenticator import Authenticator
from api.compat import inference, models, oip
from api.compat.anthropic import batches as message_batches
from api.compat.anthropic.messages import routes as messages
from api.compat.openai import batches as openai_batches
from api.compat.openai import embeddings
from api.compat.openai import files as openai_files
from api.compat.openai.chat import routes as chat
from api.compat.openai.conversations import routes as conversations
from api.compat.openai.responses import routes as responses
from api.compat.vllm import scores, tokens
from api.context import Context
from api.dashboard.rendering.live_updates import LiveUpdates
from api.docs import openapi, swagger
from api.gateway.call_log import CallLog
from api.gateway.cluster.pipeline import open_pipeline
from api.gateway.gateway import CallGateway
from api.gateway.response_cache import ResponseCache
from api.gateway.routing.router import Router
from api.gateway.routing.shadow import ShadowCalls
from api.http import errors
from api.http.idempotency import Uploads
from api.routes import calls, ended_calls, health, root, streams, why
from api.routes.admin import (
    audit,
    history,
    keys,
    limits,
    pools,
    rollouts,
    tenants,
    usage,
    worker_logs,
    workers,
)
from api.routes.admin import models as registry
from api.routes.jobs import events, jobs, resubmit, results, submit, webhooks
from api.services import loop_lag, models_watcher
from api.services.call_list import CallList
from api.services.call_preparation import CallPreparation
from api.services.diagnostics import DiagnosticsService
from api.services.intake.call_bodies import CallBodies
from api.services.intake.free_space import FreeSpace
from api.services.intake.group_commit import GroupCommit
from api.services.intake.ingest_pool import IngestPool
from api.services.intake.upload_meter import UploadMeter
from api.services.job_watcher import JobWatcher
from api.services.reports import Reports
from api.services.resources import Resources
from api.services.single_flight import SingleFlight
from api.services.turns import TenantTurns
from api.services.worker_logs import WorkerLogs
from jobs.blobs.payloads import Payloads
from jobs.models.watcher import ModelsFile
from jobs.processes.memory import collect_and_freeze
from jobs.settings import Settings
from jobs.store import db
from jobs.store.notifier import WorkNotifier
from jobs.store.registry.follower import RegistryFollower
from jobs.telemetry.metrics import metrics
from jobs.telemetry.tracing import export, spans
from jobs.version import VERSION

_CONNECTIONS = 10
_STATEMENT_S = 10.0
# Of AnyIO's 40 threads, and of those for one tenant, each with a connection: for reads and verbs,
# and for new jobs, whose commits share a write to the disk.
_THREADS, _THREADS_EACH = 24, 4
_SUBMISSIONS, _SUBMISSIONS_EACH = 12, 8
_SMALL_JOBS, _SMALL_JOBS_EACH = 64, 48  # of one transaction, and of one tenant in it
_REPORTS_TIMEOUT_S = 5.0
_ROUTES = (
    root,
    calls,
    ended_calls,
    inference,
    streams,
    embeddings,
    scores,
    tokens,
    chat,
    submit,
    jobs,
    resubmit,
    results,
    events,
    webhooks,
    usage,
    keys,
    tenants,
    limits,
    audit,
    workers,
    worker_logs,
    history,
    rollouts,
    pools,
    registry,
    health,
    why,
    oip,
    openai_files,
    openai_batches,
    models,
    responses,
    conversations,
    message_batches,
    messages,
)


def create_app(settings: Settings) -> FastAPI:
    """FastAPI application of one configuration. It is stateless: any number of processes run it.

    api/server.py wraps it in `api.middleware.fast_path.FastPath`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.live_updates = live_updates = LiveUpdates()
            app.state.context = context = build_context(settings)
            stack.callback(context.database.dispose)
            if context.notifier:
                stack.push_async_callback(run_in_threadpool, context.notifier.close)
            stack.push_async_callback(context.group_commit.stop)
            stack.push_async_callback(run_in_threadpool, spans.stop)
            export.start(settings, "api")
            stack.push_async_callback(context.response_cache.stop)
            stack.push_async_callback(live_updates.stop)
            stack.push_async_callback(context.shadows.stop)
            context.call_preparation.start()
            stack.callback(context.call_preparation.stop)
            stack.callback(context.ingest_pool.stop)
            for service in (
                context.authenticator,
                context.gateway,
                context.reports,
                context.call_log,  # stops first of those: it writes to the pipeline of reports
                context.job_watcher,
            ):
                service.start()
                stack.push_async_callback(service.stop)
            follower = RegistryFollower(
                context.database, settings.database_url, context.models_file.adopt
            )
            await run_in_threadpool(follower.start)
            stack.push_async_callback(run_in_threadpool, follower.stop)
            for name, work in _background_work(app, context).items():
                await stack.enter_async_context(_kept(name, work))
            if settings.metrics:
                metrics.CALLS_WAITING.set_function(lambda: context.gateway.in_flight)
            collect_and_freeze()
            yield

    app = FastAPI(
        title="Millrace",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.request_wait_s = lambda: 0.0  # until a server says
    errors.install(app)
    openapi.install(app)
    swagger.install(app)
    for module in _ROUTES:
        # As they are: include_router builds each anew, which takes the first request a second.
        app.router.routes.extend(module.router.routes)
    dashboard.install(app)
    return app


def build_context(settings: Settings) -> Context:
    """Context of one process; nothing in it is started."""
    resources = Resources(
        settings=settings,
        models_file=ModelsFile(settings.models),
        database=db.connect(settings.database_url, _CONNECTIONS, _STATEMENT_S, role=db.API),
        payloads=Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint),
    )
    notifier = WorkNotifier(settings.database_url)
    gateway = CallGateway(settings.redis_url, settings.max_queued_calls, settings.max_streams)
    # Calls have a connection of their own, and don't wait for large reports.
    pipeline = open_pipeline(settings.redis_url, _REPORTS_TIMEOUT_S)
    process = {"host": socket.gethostname(), "pid": os.getpid(), "url": settings.url}
    reports = Reports(
        pipeline, gateway.name, process, settings.metrics_window_s, on=settings.metrics
    )
    responses = ResponseCache(settings.redis_url, settings.call_idempotency_s)
    turns, free_space = TenantTurns(_THREADS, _THREADS_EACH), FreeSpace(settings)
    return Context(
        settings=resources.settings,
        models_file=resources.models_file,
        database=resources.database,
        payloads=resources.payloads,
        notifier=notifier,
        gateway=gateway,
        router=Router(gateway.model_statuses, responses),
        shadows=ShadowCalls(gateway, pipeline),
        call_preparation=CallPreparation(settings, resources.models_file),
        ingest_pool=IngestPool(settings, resources.models_file),
        job_watcher=JobWatcher(resources.database),
        response_cache=responses,
        call_bodies=CallBodies(settings.max_bodies_mb << 20),
        upload_meter=UploadMeter(resources.database, turns, free_space),
        uploads=Uploads(),
        authenticator=Authenticator(settings),
        reports=reports,
        turns=turns,
        submission_turns=TenantTurns(_SUBMISSIONS, _SUBMISSIONS_EACH),
        small_job_turns=TenantTurns(_SMALL_JOBS, _SMALL_JOBS_EACH),
        group_commit=GroupCommit(resources.database, notifier),
        call_log=CallLog(pipeline, on=settings.metrics),
        call_list=CallList(pipeline),
        worker_logs=WorkerLogs(pipeline),
        diagnostics=DiagnosticsService(resources, reports),
        single_flight=SingleFlight(),
        free_space=free_space,
    )


def _background_work(app: FastAPI, context: Context) -> dict[str, background.Work]:
    """Work that needs nothing but to be kept running, by name."""
    work: dict[str, background.Work] = {
        "models file": partial(models_watcher.follow, context.models_file),
        "free space": context.free_space.watch,
    }
    if context.settings.metrics:
        work["loop lag"] = partial(loop_lag.watch, lambda: app.state.request_wait_s())
    return work


@asynccontextmanager
async def _kept(name: str, work: background.Work) -> AsyncIterator[None]:
    """Runs a task until the end of the block, which cancels it."""
    task = background.keep(name, work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
