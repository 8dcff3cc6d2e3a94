"""Server-sent events of a job's progress."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from api.context import ContextDep
from api.dependencies import Reader, reads_on
from api.http.authorized_stream import AuthorizedStream
from api.routes.jobs.lookup import JobId, read_job
from api.schemas.common import JOB_ID
from api.services.job_watcher import event_id
from jobs.states import TERMINAL
from jobs.views import jobs

router = APIRouter(tags=["jobs"])

_EVENTS = "text/event-stream"
_EXAMPLE = (
    f'id: 1.300.100.running\nevent: job\ndata: {{"id": "{JOB_ID}", "state": "running", …}}\n\n'
)
_DOC: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "events named `job`, each with the job object as its data",
        "content": {_EVENTS: {"schema": {"type": "string"}, "example": _EXAMPLE}},
    },
    204: {"description": "Last-Event-ID is that of the end: nothing more will come"},
}


@router.get("/jobs/{job_id}/events", response_class=StreamingResponse, responses=_DOC)
def job_events(
    request: Request,
    context: ContextDep,
    caller: Reader,
    job_id: JobId,
    last_event_id: Annotated[
        str | None, Header(description="as EventSource sends it; any value will do")
    ] = None,
) -> Response:
    """Streams the job object now and whenever its state or counts change, until it is terminal. A
    slow reader gets the latest one; a quiet stream carries a comment every 15 s."""
    with read_job(request, context, caller, job_id) as (_, row):
        job, tenant = jobs.job_object(row), row.tenant_id
    if job["state"] in TERMINAL and last_event_id == event_id(job):
        return Response(status_code=204)

    check = reads_on(request, context, tenant)
    stream = context.job_watcher.stream(job, check)
    return AuthorizedStream(stream, check, headers={"X-Accel-Buffering": "no"}, media_type=_EVENTS)
