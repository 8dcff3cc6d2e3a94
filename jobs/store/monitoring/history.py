"""History of figures: a row a minute and subject for two days, a row per ten minutes for thirty.

A keeper writes what all processes reported of the last minute; where there are several, the one
that comes first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    REAL,
    ColumnElement,
    and_,
    cast,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from jobs.store import db
from jobs.store.db import Tx
from jobs.store.scaling_tables import figures as table
from jobs.telemetry.reports.figures import EVERYTHING, Figures

MINUTE_S, COARSE_S = 60, 600
KEPT_S = {MINUTE_S: 2 * 86_400, COARSE_S: 30 * 86_400}
"""Time for which rows are kept, by the time that each stands for."""

_NAMES = tuple(field.name for field in fields(Figures))
_LATENCIES = ("p50_s", "p95_s")
_EPOCH = datetime.fromtimestamp(0, UTC)
_AT_ONCE = 10_000  # rows deleted in one transaction
_c = table.c


@dataclass(frozen=True, slots=True)
class PointRow:
    """Figures of one subject from `at` on."""

    at: datetime
    figures: Figures


def is_written(tx: Tx) -> bool:
    """Returns True once this minute has rows."""
    its = _c.subject == EVERYTHING, _c.step == MINUTE_S, _c.at == _floor(db.now(tx), MINUTE_S)
    return bool(tx.scalar(select(exists().where(*its))))


def add_minute(tx: Tx, by_subject: Mapping[str, Figures]) -> None:
    """Adds the rows of this minute, where no other keeper has, and of the ten minutes that passed
    since the last such row."""
    at = _floor(db.now(tx), MINUTE_S)
    rows = [
        {"subject": subject, "step": MINUTE_S, "at": at, **asdict(its)}
        for subject, its in sorted(by_subject.items())  # in one order: keepers don't deadlock
    ]
    if rows:
        tx.execute(upsert(table).on_conflict_do_nothing(), rows)
    _add_coarse(tx)


def _add_coarse(tx: Tx) -> None:
    done = select(func.max(_c.at)).where(_c.subject == EVERYTHING, _c.step == COARSE_S)
    last: datetime | None = tx.scalar(done)
    since = last + timedelta(seconds=COARSE_S) if last else _EPOCH
    until = _floor(db.now(tx), COARSE_S)
    if since >= until:
        return
    at = _bin(COARSE_S)
    means = (
        select(_c.subject, literal(COARSE_S), at, *map(_mean, _NAMES))
        .where(_c.step == MINUTE_S, _c.at >= since, _c.at < until)
        .group_by(_c.subject, at)
        .order_by(_c.subject, at)
    )
    names = ["subject", "step", "at", *_NAMES]
    tx.execute(upsert(table).from_select(names, means).on_conflict_do_nothing())


def delete_old(tx: Tx) -> int:
    """Deletes some of the rows that have been kept long enough; returns their number."""
    now = db.now(tx)
    old = or_(
        *(
            and_(_c.step == step, _c.at < now - timedelta(seconds=kept_s))
            for step, kept_s in KEPT_S.items()
        )
    )
    key = tuple_(_c.subject, _c.step, _c.at)
    some = select(_c.subject, _c.step, _c.at).where(old).limit(_AT_ONCE)
    return tx.execute(delete(table).where(key.in_(some))).rowcount


def read(tx: Tx, subject: str, length_s: int, step_s: int) -> list[PointRow]:
    """Returns points of the last `length_s`, oldest first, each of `step_s`: a multiple of a
    minute, or of ten for times that are further back than minutes are kept."""
    kept = MINUTE_S if length_s <= KEPT_S[MINUTE_S] and step_s % COARSE_S else COARSE_S
    since = _floor(db.now(tx), step_s) - timedelta(seconds=length_s)
    at = _bin(step_s)
    query = (
        select(at, *map(_mean, _NAMES))
        .where(_c.subject == subject, _c.step == kept, _c.at >= since)
        .group_by(at)
        .order_by(at)
    )
    return [_point(row) for row in tx.execute(query)]


def _point(row: Sequence[Any]) -> PointRow:
    at, *values = row
    return PointRow(at, Figures(*values))


def _floor(at: datetime, step_s: int) -> datetime:
    return at - (at - _EPOCH) % timedelta(seconds=step_s)


def _bin(step_s: int) -> ColumnElement[datetime]:
    return func.date_bin(timedelta(seconds=step_s), _c.at, _EPOCH).label("bin")


def _mean(name: str) -> ColumnElement[float]:
    """Mean over the rows that know it; the longest queue; latencies weighted by calls and items."""
    figure: ColumnElement[float] = _c[name]
    if name == "waiting":
        return func.max(figure)
    if name not in _LATENCIES:
        return cast(func.avg(figure), REAL)
    weight = func.greatest(func.coalesce(_c.calls_s, 0) + func.coalesce(_c.items_s, 0), 1e-6)
    known = figure.is_not(None)
    return cast(func.sum(figure * weight).filter(known) / func.sum(weight).filter(known), REAL)
