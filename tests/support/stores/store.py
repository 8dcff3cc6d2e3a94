"""Calls of the store as a worker and a client make them, in a line each."""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from jobs import clock
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model
from jobs.states import Outcome
from jobs.store import partitions
from jobs.store.db import Tx
from jobs.store.jobs import read, verbs
from jobs.store.jobs.read import JobRow
from jobs.store.queue import claim as claims
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Result
from jobs.usecases.submit import Order, submit
from tests.support.stores.transactions import execute

ECHO = SAMPLES.resolve("echo")


def post(database: Engine, *items: object, **order: object) -> UUID:
    ordered = Order("echo", **order)  # type: ignore[arg-type]
    id: UUID = submit(database, SAMPLES, "default", ordered, array=list(items)).id
    return id


def claim(
    database: Engine, room: int = 1000, lease_s: float = 60, model: Model = ECHO, owner: int = 1
) -> list[Lease]:
    with database.begin() as tx:
        return claims.claim(tx, owner, {model: room}, lease_s)


def settle(database: Engine, leases: Sequence[Lease], seqs: Container[int] | None = None) -> int:
    """Settles slices, with the results of all their items or of some."""
    with database.begin() as tx:
        rows = [
            Result(leases[n].job_id, leases[n].tenant, seq, "succeeded", 1, None, None, value, None)
            for n, seq, value, *_ in claims.read_inputs(tx, leases)
            if seqs is None or seq in seqs
        ]
        return settling.settle(tx, leases, rows)


def results(
    lease: Lease, *seqs: int, outcome: Outcome = "succeeded", units: int = 1, **more: Any
) -> list[Result]:
    """Results of items of a slice, of all where none is named."""
    output = '"x"' if outcome == "succeeded" else None
    its, end = (lease.job_id, lease.tenant), (outcome, units, None, None, output, None)
    return [Result(*its, seq, *end, **more) for seq in seqs or range(lease.start, lease.stop)]


def lapse(database: Engine) -> None:
    """All leases run out."""
    execute(database, "UPDATE slices SET lease_until = now() - interval '1 s'")


def end_cancelled(tx: Tx) -> int:
    """Ends a cancelled job, as a keeper does."""
    found = verbs.unended_cancelled(tx)
    return verbs.end_cancelled(tx, found[0]) if found else 0


def end_expired(tx: Tx) -> int:
    """Ends a job whose time is up, as a keeper does."""
    due = verbs.expired(tx)
    if due:
        verbs.expire(tx, due[0])
    return len(due)


def job(database: Engine, id: UUID) -> JobRow:
    with database.connect() as tx:
        return read.one(tx, "default", id)


def count(database: Engine, table: str, id: UUID | None = None) -> int:
    where = "" if id is None else f" WHERE {'id' if table == 'jobs' else 'job_id'} = '{id}'"
    with database.connect() as tx:
        found: int = tx.scalars(text(f"SELECT count(*) FROM {table}{where}")).one()
    return found


def result_chunks(database: Engine, id: UUID, **query: Any) -> Iterator[bytes]:
    """Results of a job, as the api streams them."""
    asked = {"after": -1, "gaps": False, "outcome": None, "limit": None} | query
    with database.connect() as tx:
        row = read.one(tx, "default", id)
        span = read.span(tx, "default", id, row.total, **asked)
    return read.result_lines(database, row, span, "characters", asked["outcome"])


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
