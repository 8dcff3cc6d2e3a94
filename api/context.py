"""Objects that routes share for the life of an api process."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Resources):
    """Everything that routes need; api/app.py builds, starts and stops it."""

    gateway: CallGateway  #: inference calls, through Redis
    ingest_pool: IngestPool  #: child processes that take large bodies in
    job_watcher: JobWatcher  #: streams of jobs' progress
    response_cache: ResponseCache  #: responses of calls, by Idempotency-Key
    uploads: Uploads  #: bodies that are coming in under an Idempotency-Key
    authenticator: Authenticator  #: from a credential to a Caller
    reports: Reports  #: what the platform's processes report
    call_log: CallLog  #: calls that ended within the last hour
    diagnostics: DiagnosticsService  #: findings of `why`


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


ContextDep = Annotated[Context, Depends(_context)]
