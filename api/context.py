"""What the routes share: made when the app starts, closed when it ends."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Engine as Database

from api.events import JobEvents
from api.gateway import CallGateway
from api.idempotency import Uploads
from api.kept import KeptAnswers
from jobs.blobs.payloads import Payloads
from jobs.registry import Registry
from jobs.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    settings: Settings
    models: Registry
    database: Database
    calls: CallGateway
    payloads: Payloads
    events: JobEvents
    kept: KeptAnswers
    uploads: Uploads


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _tenant() -> str:
    """Who is asking. On loopback, as long as no key was made: everybody is `default`."""
    return "default"


Shared = Annotated[Context, Depends(_context)]
Tenant = Annotated[str, Depends(_tenant)]
