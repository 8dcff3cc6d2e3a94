"""Server-sent events of a job's progress."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse

from api.auth import Reader
from api.context import Shared
from api.events import event_id
from api.routes.common import JobId, job_of
from jobs import views
from jobs.states import TERMINAL

router = APIRouter(tags=["jobs"])

_EVENTS = "text/event-stream"
_DOC: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "events named `job`, each with the job object as its data",
        "content": {_EVENTS: {"schema": {"type": "string"}}},
    },
    204: {"description": "Last-Event-ID is that of the end: there is nothing more to come"},
}


@router.get("/jobs/{job_id}/events", response_class=StreamingResponse, responses=_DOC)
def job_events(
    shared: Shared,
    caller: Reader,
    job_id: JobId,
    last_event_id: Annotated[
        str | None, Header(description="as EventSource sends it; any value will do")
    ] = None,
) -> Response:
    """The job object now, and again whenever its state or its counts have changed, until it is
    terminal. A slow reader gets the latest one; a quiet stream carries a comment every 15 s."""
    with job_of(shared, caller, job_id) as (_, row):
        job = views.job_object(row)
    if job["state"] in TERMINAL and last_event_id == event_id(job):
        return Response(status_code=204)
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(shared.events.stream(job), headers=headers, media_type=_EVENTS)
