"""Figures over time, for operators."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from api.context import ContextDep
from api.dependencies import Operator
from api.schemas.common import MODEL
from api.schemas.history import History, HistoryPoint, HistoryRange
from jobs.store.monitoring import history as store
from jobs.store.tenancy import EVERYBODY
from jobs.telemetry.reports.figures import EVERYTHING
from jobs.views.jobs import timestamp

router = APIRouter(tags=["workers"])

_DAY_S = 86_400
SPANS: dict[HistoryRange, tuple[int, int]] = {
    "30m": (1800, 60),
    "6h": (6 * 3600, 120),
    "24h": (_DAY_S, 600),
    "7d": (7 * _DAY_S, 3600),
    "30d": (30 * _DAY_S, 4 * 3600),
}
"""Length of each range, and the time that each of its points stands for, s."""

_About = Annotated[
    str,
    Query(
        pattern=rf"^({EVERYTHING}|(model|worker|pool):[^\x00]+)$",
        max_length=300,
        description="`everything`, `model:NAME@VERSION`, `worker:ID` or `pool:NAME`",
        examples=[f"model:{MODEL}@1"],
    ),
]
_Range = Annotated[HistoryRange, Query(alias="range")]


@router.get("/history")
def read_history(
    context: ContextDep, caller: Operator, about: _About = EVERYTHING, span: _Range = "24h"
) -> History:
    """Returns throughput, latency, queue, refusals, failures and utilization over time, as keepers
    wrote them once a minute. Of a model, worker or pool that never reported there are no points."""
    length_s, step_s = SPANS[span]
    with context.acting(EVERYBODY) as tx:
        rows = store.read(tx, about, length_s, step_s)
    points = [HistoryPoint(at=timestamp(row.at) or "", **asdict(row.figures)) for row in rows]
    return History(about=about, range=span, step_s=step_s, data=points)
