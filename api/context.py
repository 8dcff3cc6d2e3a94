"""What the routes share: made when the app starts, closed when it ends."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.credentials import Credentials
from api.events import JobEvents
from api.explaining import Explainer
from api.gateway import CallGateway
from api.idempotency import Uploads
from api.ingest import Ingest
from api.kept import KeptAnswers
from api.recording import CallRecords
from api.reports import Reports
from api.resources import Resources


@dataclass(frozen=True, slots=True)
class Context(Resources):
    calls: CallGateway
    ingest: Ingest
    events: JobEvents
    kept: KeptAnswers
    uploads: Uploads
    credentials: Credentials
    reports: Reports
    records: CallRecords
    explainer: Explainer


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Shared = Annotated[Context, Depends(_context)]
