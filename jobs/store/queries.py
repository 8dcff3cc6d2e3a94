"""Parts that queries share: rows as dataclasses, the filter by tenant, pages."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Double,
    Executable,
    FromClause,
    Select,
    and_,
    bindparam,
    cast,
    func,
    or_,
    select,
    true,
)

from jobs.models.model import PREPARATION
from jobs.store.db import Tx
from jobs.store.tables import jobs
from jobs.store.tenancy import EVERYBODY
from jobs.vectors import MARK

R = TypeVar("R")

VERSION_OF_SLICE = f"replace(s.version, '{PREPARATION}', '')"
"""SQL: version of slice `s` that clients know, whether it is to be prepared or to be run."""

OUTPUT = f"coalesce(r.output, '{MARK}' || encode(r.vector, 'hex'))"
"""SQL: output of a result `r`: JSON, a reference to the blob store, or a vector as
`jobs.vectors.as_json` takes it."""


def many(
    tx: Tx, kind: Callable[..., R], statement: Executable, values: Mapping[str, Any] | None = None
) -> list[R]:
    """Rows of a statement whose columns are the fields of `kind`, in their order."""
    return [kind(*row) for row in tx.execute(statement, values)]


def one(
    tx: Tx, kind: Callable[..., R], statement: Executable, values: Mapping[str, Any] | None = None
) -> R | None:
    """The row of a statement that returns at most one, or None."""
    row = tx.execute(statement, values).one_or_none()
    return None if row is None else kind(*row)


def pairs(tx: Tx, statement: Executable, values: Mapping[str, Any] | None = None) -> dict[Any, Any]:
    """Rows of a statement of two columns: from the first to the second."""
    return {row[0]: row[1] for row in tx.execute(statement, values)}


def columns(kind: type, table: FromClause) -> list[ColumnElement[Any]]:
    """Columns of a table that `kind` has fields for, in the order of its fields."""
    return [table.c[field.name] for field in fields(kind) if field.name in table.c]


def is_own(table: FromClause) -> ColumnElement[bool]:
    """Filters by the tenant in the parameter `tenant`."""
    return table.c.tenant_id == bindparam("tenant")


def is_own_or_all(table: FromClause, tenant: str) -> ColumnElement[bool]:
    """Filters by this tenant, or by none for EVERYBODY."""
    if tenant == EVERYBODY:
        return true()
    return table.c.tenant_id == bindparam("tenant", tenant)


def is_live(table: FromClause) -> ColumnElement[bool]:
    """Filters out rows that have expired."""
    return or_(table.c.expires_at.is_(None), table.c.expires_at > func.now())


def age_s(since: ColumnElement[Any]) -> ColumnElement[Any]:
    """Time since then by the database's clock, s; negative: until then."""
    return cast(func.extract("epoch", func.now() - since), Double)


def in_days(days: float) -> ColumnElement[Any]:
    """The database's time in so many days."""
    return func.now() + timedelta(days=days)


def in_s(seconds: float | ColumnElement[Any] | None) -> ColumnElement[Any] | None:
    """The database's time in so many seconds; None for None."""
    if isinstance(seconds, ColumnElement):
        return func.now() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    return None if seconds is None else func.now() + timedelta(seconds=seconds)


def unfinished(slices: FromClause) -> ColumnElement[int]:
    """Number of items of a slice that have no result."""
    s = slices.c
    ended: ColumnElement[int] = s.n_succeeded + s.n_failed + s.n_cancelled + s.n_expired
    return s.stop - s.start - ended


def oldest_jobs(*conditions: ColumnElement[bool], most: int, most_items: int) -> Select[UUID]:
    """The first jobs that together have at most so many items: a running sum over them.

    One job is the least, and jobs without items come along.
    """
    oldest = select(jobs.c.id, jobs.c.total).where(*conditions).order_by(jobs.c.id).limit(most)
    o = oldest.subquery("oldest").c
    summed = select(o.id, o.total, func.sum(o.total).over(order_by=o.id).label("filled"))
    s = summed.subquery("summed").c
    return select(s.id).where(or_(s.filled <= most_items, s.filled == s.total))


def equal(table: FromClause, **wanted: Any) -> ColumnElement[bool]:
    """Filters by each of these columns that has a value; None and "" ask for nothing."""
    return and_(true(), *(table.c[name] == value for name, value in wanted.items() if value))


def page(
    query: Select[Any], by: ColumnElement[Any], after: Any, limit: int, *, ascending: bool = False
) -> Select[Any]:
    """One page, newest first, that begins after the row whose `by` is `after` (None: the first)."""
    if after is not None:
        query = query.where(by > after if ascending else by < after)
    return query.order_by(by if ascending else by.desc()).limit(limit)
