"""Jobs by a filter: pages of them, their number in each state, their ids for bulk actions.

Labels have an index of their own, in their table. All other filters are served by the indexes of
other queries: one that finds nothing in 100,000 jobs takes 20 ms (`millrace bench dashboard`), and
one more index would slow down every submission.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, true

from jobs import ids
from jobs.states import JobState
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.jobs.read import JobRow, counted
from jobs.store.scaling_tables import job_labels
from jobs.store.tables import jobs

MOST_COUNTED = 100_000
"""Most jobs of a filter that are counted."""

_PREFIXES = ("job", "batch", "msgbatch")
_j = jobs.c


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on jobs; what is empty or None asks for nothing."""

    states: tuple[JobState, ...] = ()  #: any of these states
    model: str = ""  #: name of the model
    version: str = ""  #: version of the model
    since: datetime | None = None  #: earliest submission, by the time in the job's id
    until: datetime | None = None  #: end of that time, excluded
    name: str = ""  #: part of the job's name, in any case
    labels: tuple[tuple[str, str], ...] = ()  #: all of these pairs
    text: str = ""  #: a job's id, or words that all stand in its metadata, in any case
    unsuccessful: bool = False  #: ended with items that did not succeed
    ids: tuple[UUID, ...] = ()  #: any of these jobs
    dialect: str = ""  #: dialect of its items and results

    def condition(self) -> ColumnElement[bool]:
        """Builds the condition as SQL, labels aside."""
        named = {"model": self.model, "version": self.version, "dialect": self.dialect}
        parts = [queries.equal(jobs, **named), _text(self.text)]
        if self.name:
            parts.append(_j.name.icontains(self.name, autoescape=True))
        if self.states:
            parts.append(_j.state.in_(self.states))
        if self.since:
            parts.append(_j.id >= ids.earliest(self.since))
        if self.until:
            parts.append(_j.id < ids.earliest(self.until))
        if self.ids:
            parts.append(_j.id.in_(self.ids))
        if self.unsuccessful:
            failed = or_(_j.n_succeeded < _j.total, _j.total == 0)
            parts.append(_j.finished_at.is_not(None) & failed)
        return and_(*parts)


def _text(asked: str) -> ColumnElement[bool]:
    if id := ids.parse(_PREFIXES, asked.strip()):
        return _j.id == id
    return and_(true(), *(_j.metadata.icontains(word, autoescape=True) for word in asked.split()))


def _where(
    query: Select[Any], tenant: str, filter: Filter, made_before: datetime | None = None
) -> Select[Any]:
    query = query.where(filter.condition(), queries.is_own_or_all(jobs, tenant))
    return query.where(_j.created_at <= made_before) if made_before else query


def _labelled(
    query: Select[Any], filter: Filter, after: UUID | None = None, newer: bool = False
) -> Select[Any]:
    """Joins the filter's labels. after, newer: where the page begins, as PostgreSQL doesn't apply
    what bounds a job's id to the index of labels."""
    for key, value in filter.labels:
        pair = job_labels.alias()
        its = [pair.c.job_id == _j.id, pair.c.tenant_id == _j.tenant_id]
        if after is not None:
            its.append(pair.c.job_id > after if newer else pair.c.job_id < after)
        query = query.join(pair, and_(*its, pair.c.key == key, pair.c.value == value))
    return query


def page(
    tx: Tx, tenant: str, filter: Filter, *, after: UUID | None = None, limit: int,
    newer: bool = False,
) -> list[JobRow]:  # fmt: skip
    """Lists jobs, newest first, with their counts. tenant: one, or EVERYBODY.

    after: the id of the last job of the page before or, with `newer`, of the first of the page
    after.
    """
    query = _labelled(_where(select(jobs), tenant, filter), filter, after, newer)
    return queries.many(
        tx, JobRow, counted(queries.page(query, _j.id, after, limit, ascending=newer))
    )


def counts(
    tx: Tx, tenant: str, filter: Filter, made_before: datetime | None = None
) -> Mapping[JobState, int]:
    """Counts jobs by state; made_before: those that were there at that time.

    Exact up to MOST_COUNTED in all; where there are more, their sum is one more than that.
    """
    matching = _labelled(_where(select(_j.state), tenant, filter, made_before), filter)
    found = matching.limit(MOST_COUNTED + 1).subquery()
    query = select(found.c.state, func.count()).group_by(found.c.state)
    return queries.pairs(tx, query)


def now(tx: Tx) -> datetime:
    """Returns the time by the database's clock, for `made_before`."""
    return tx.scalars(select(func.now())).one()


def matching_ids(
    tx: Tx, tenant: str, filter: Filter, made_before: datetime, *, after: UUID | None, limit: int
) -> list[UUID]:
    """Lists ids of jobs that were there at that time, newest first, from `after` on."""
    query = _labelled(_where(select(_j.id), tenant, filter, made_before), filter, after)
    return list(tx.scalars(queries.page(query, _j.id, after, limit)))
