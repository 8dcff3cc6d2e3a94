"""Page of one call that ended: where its time went, and when it got its tokens."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Response

from api.context import ContextDep
from api.dashboard.auth.viewer import Somebody
from api.dashboard.rendering import layout, page_router
from api.dashboard.rendering.token_timeline import token_timeline
from api.routes.why import CallId, find_call
from jobs.calls.records import CallRecord
from jobs.explain.calls import explain_call, stages

router = page_router.router()


async def _record(context: ContextDep, viewer: Somebody, call_id: CallId) -> CallRecord:
    return await find_call(context, viewer.caller, call_id)


Record = Annotated[CallRecord, Depends(_record)]


@router.get("/calls/{call_id}")
def show_call(page: layout.ReaderPage, record: Record) -> Response:
    """Shows a call."""
    return page.render(
        "call.html",
        record=record,
        ended_at=datetime.fromtimestamp(record.ended_at, UTC),
        causes=explain_call(record),
        stages={name: ms for name, ms in stages(record) if ms >= 0.05},
        timeline=token_timeline(record),
    )
