"""What the routes share: made when the app starts, closed when it ends."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.auth.authenticator import Authenticator
from api.gateway.call_log import CallLog
from api.gateway.gateway import CallGateway
from api.gateway.response_cache import ResponseCache
from api.http.idempotency import Uploads
from api.services.diagnostics import DiagnosticsService
from api.services.ingest_pool import IngestPool
from api.services.job_watcher import JobWatcher
from api.services.reports import Reports
from api.services.resources import Resources


@dataclass(frozen=True, slots=True)
class Context(Resources):
    calls: CallGateway
    ingest: IngestPool
    events: JobWatcher
    kept: ResponseCache
    uploads: Uploads
    credentials: Authenticator
    reports: Reports
    records: CallLog
    explainer: DiagnosticsService


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Shared = Annotated[Context, Depends(_context)]
