"""Calls of the store as a worker and a client make them, in a line each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from jobs import clock
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model
from jobs.store import partitions
from jobs.store.jobs import read
from jobs.store.jobs.read import JobRow
from jobs.store.queue import claim as claims
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Result
from jobs.usecases.submit import Order, submit

ECHO = SAMPLES.resolve("echo")


def post(database: Engine, *items: object, **order: object) -> UUID:
    ordered = Order("echo", **order)  # type: ignore[arg-type]
    id: UUID = submit(database, SAMPLES, "default", ordered, array=list(items)).id
    return id


def claim(
    database: Engine, room: int = 1000, lease_s: float = 60, model: Model = ECHO
) -> list[Lease]:
    with database.begin() as tx:
        return claims.claim(tx, 1, {model: room}, lease_s)


def settle(database: Engine, leases: Sequence[Lease]) -> int:
    with database.begin() as tx:
        rows = [
            Result(leases[n].job_id, leases[n].tenant, seq, "succeeded", 1, None, None, value, None)
            for n, seq, value, *_ in claims.read_inputs(tx, leases)
        ]
        return settling.settle(tx, leases, rows)


def job(database: Engine, id: UUID) -> JobRow:
    with database.connect() as tx:
        return read.one(tx, "default", id)


def count(database: Engine, table: str, id: UUID | None = None) -> int:
    where = "" if id is None else f" WHERE {'id' if table == 'jobs' else 'job_id'} = '{id}'"
    with database.connect() as tx:
        found: int = tx.scalars(text(f"SELECT count(*) FROM {table}{where}")).one()
    return found


@contextmanager
def at(moment: datetime, database: Engine) -> Iterator[None]:
    """Whatever is submitted here was submitted then, into the partitions of then."""
    with database.begin() as tx:
        partitions.ensure(tx, moment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: moment)
        yield


def ended(database: Engine, id: UUID, moment: datetime) -> None:
    """The job, which has ended, did so then."""
    with database.begin() as tx:
        tx.execute(
            text("UPDATE jobs SET created_at = :at, finished_at = :at WHERE id = :id"),
            {"at": moment, "id": id},
        )
