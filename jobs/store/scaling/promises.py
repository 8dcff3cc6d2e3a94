"""Times by which jobs should be done, where nothing else is promised."""

from collections.abc import Iterable

from sqlalchemy import case, func, select

from jobs.models.model import Model
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.tables import jobs

_BULK = 12
"""Times as long as a standard job that a bulk job may take; an interactive one may take no time."""

_j = jobs.c
_MODEL = _j.model + "@" + _j.version


def left_s(tx: Tx, models: Iterable[Model], standard_s: float) -> dict[str, float]:
    """Returns the time until the first of each model's open jobs should be done, by name@version,
    s; negative: that was to be done before. Models without jobs are absent.

    standard_s: time from the submission of a standard job. No job may take more than half of the
    time after which it expires. Reads all open jobs."""
    may_take_s = case(
        (_j.job_class == "interactive", 0.0),
        (_j.job_class == "bulk", _BULK * standard_s),
        else_=standard_s,
    )
    least_s = func.least(may_take_s, _j.expires_in_s / 2)  # of what is not null
    promised_at = _j.created_at + func.make_interval(0, 0, 0, 0, 0, 0, least_s)
    query = select(_MODEL, -queries.age_s(func.min(promised_at))).where(
        _j.finished_at.is_(None),
        _j.state.in_(("queued", "running")),
        _MODEL.in_([model.key for model in models]),
    )
    return queries.pairs(tx, query.group_by(_MODEL))
