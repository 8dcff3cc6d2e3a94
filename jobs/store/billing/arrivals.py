"""Calls and items by minute and model, of all tenants: what a plan for later is made from.

Calls stand in the ledger, by the minute in which they were answered; refused ones don't. Items are
those of the jobs that are still there, by the minute in which their job was accepted.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select

from jobs.store.db import Tx
from jobs.store.tables import jobs, usage

MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class Minute:
    """Calls or items of one version in one minute."""

    at_s: int  #: Unix time of its beginning
    model: str
    version: str
    count: int
    units: float  #: of all; of items, as of those of the version that have run
    device_us: float  #: likewise


def calls(tx: Tx, since: datetime, until: datetime) -> list[Minute]:
    """Returns the calls that were answered in a time. until: excluded."""
    minute, u = _minute(usage.c.at), usage.c
    sums = func.sum(u.succeeded + u.failed), func.sum(u.units), func.sum(u.device_us)
    query = select(minute, u.model, u.version, *sums).where(
        u.kind == "calls", u.at >= since, u.at < until
    )
    rows = tx.execute(query.group_by(minute, u.model, u.version))
    return [
        Minute(int(at_s), model, version, int(count), float(units), float(us))
        for at_s, model, version, count, units, us in rows
    ]


def items(tx: Tx, since: datetime, until: datetime) -> list[Minute]:
    """Returns the items of jobs that were accepted in a time. until: excluded."""
    minute, j = _minute(jobs.c.created_at), jobs.c
    query = select(minute, j.model, j.version, func.sum(j.total)).where(
        j.created_at >= since, j.created_at < until
    )
    rows = tx.execute(query.group_by(minute, j.model, j.version)).all()
    means = _means(tx, since)
    found = list[Minute]()
    for at_s, model, version, count in rows:
        units, us = means.get((model, version), (0.0, 0.0))
        total = int(count)
        found.append(Minute(int(at_s), model, version, total, total * units, total * us))
    return found


def _means(tx: Tx, since: datetime) -> dict[tuple[str, str], tuple[float, float]]:
    """Returns the mean units and device time (µs) of an item that ran since then, by version."""
    u = usage.c
    units = func.sum(u.units) / func.greatest(1, func.sum(u.succeeded))
    us = func.sum(u.device_us) / func.greatest(1, func.sum(u.succeeded + u.failed))
    query = select(u.model, u.version, units, us).where(u.kind == "items", u.at >= since)
    rows = tx.execute(query.group_by(u.model, u.version))
    return {(model, version): (float(mean), float(its)) for model, version, mean, its in rows}


def _minute(at: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.floor(func.extract("epoch", at) / MINUTE_S) * MINUTE_S
