"""Last lines of workers' logs, for operators."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from api.context import Context, ContextDep
from api.dependencies import Operator
from api.routes.admin.workers import WorkerId, worker_of
from api.schemas.common import NO_NUL
from api.schemas.logs import LogLevel, LogLine, LogLines
from api.services.worker_logs import MOST_LINES, LinesWanted
from jobs.store.tenancy import EVERYBODY

router = APIRouter(tags=["workers"])


@router.get("/workers/{worker_id}/logs")
async def read_logs(
    context: ContextDep,
    caller: Operator,
    worker_id: WorkerId,
    level: Annotated[LogLevel, Query(description="least severe level")] = "debug",
    text: Annotated[
        str, Query(max_length=200, pattern=NO_NUL, description="part of a line, in any case")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_LINES)] = 200,
    after: Annotated[
        str, Query(pattern=r"^(\d{1,15}-\d{1,10})?$", description="`next` of the answer before")
    ] = "",
) -> LogLines:
    """Returns the last lines of a worker's log that are wanted, as it wrote them to standard
    error: a worker keeps the last `MILLRACE_LOG_LINES` in Redis, until a day after the last one."""
    await run_in_threadpool(_check_known, context, worker_id)
    lines, last = await context.worker_logs.read(worker_id, LinesWanted(level, text, limit), after)
    return LogLines(data=[line_object(line) for line in lines], next=last or None)


def line_object(line: dict[str, Any]) -> LogLine:
    """Returns a line as JSON has it."""
    return LogLine.model_validate({"level": "info", "logger": "", "message": "", **line})


def _check_known(context: Context, worker_id: int) -> None:
    with context.acting(EVERYBODY) as tx:
        worker_of(tx, worker_id)
