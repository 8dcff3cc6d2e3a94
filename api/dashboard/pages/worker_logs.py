"""Page with the last lines of a worker's log, which follows it."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response
from redis import RedisError

from api.context import ContextDep
from api.dashboard.auth.viewer import Somebody
from api.dashboard.data.job_filter import Text
from api.dashboard.pages.workers import WorkerId
from api.dashboard.rendering import layout, page_router
from api.dependencies import require
from api.routes.admin import workers as json_routes
from api.schemas.logs import LogLevel
from api.services.worker_logs import LEVELS, LinesWanted
from jobs.store.tenancy import EVERYBODY

router = page_router.router()

_Lines = list[dict[str, Any]] | None
LIMITS = (100, 300, 1000)


async def _load(
    context: ContextDep,
    viewer: Somebody,
    id: WorkerId,
    level: LogLevel = "debug",
    text: Text = "",
    lines: Annotated[Literal["100", "300", "1000"], Query()] = "100",
) -> _Lines:
    """Returns the lines, newest first; None without Redis."""
    require(viewer.caller, "operate")
    try:
        found, _ = await context.worker_logs.read(id, LinesWanted(level, text.strip(), int(lines)))
    except (RedisError, TimeoutError):
        return None
    return found[::-1]


@router.get("/workers/{id}/logs")
def show_logs(
    page: layout.OperatorPage,
    found: Annotated[_Lines, Depends(_load)],
    id: WorkerId,
    level: LogLevel = "debug",
    text: Text = "",
    lines: str = "100",
) -> Response:
    """Shows the lines that are wanted."""
    with page.context.acting(EVERYBODY) as tx:
        row = json_routes.worker_of(tx, id)
    return page.render(
        "worker_logs.html",
        row=row,
        lines=found,
        levels=LEVELS,
        limits=LIMITS,
        kept=page.context.settings.log_lines,
        filters={"level": level, "text": text, "lines": lines},
        shown=_SHOWN,
    )


_SHOWN = ("id", "timestamp", "level", "logger", "message", "exception", "worker", "process", "pid")
"""Fields of a line that have a place of their own, or are those of the worker."""
