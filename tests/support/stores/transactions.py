"""Calls of the store, and SQL, in transactions of their own."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest
from sqlalchemy import Connection, Engine, Row, text

from jobs.store import db

T = TypeVar("T")
P = ParamSpec("P")
_IDLE_S = 600.0  # on a busy machine the whole process may stand still in a transaction


@contextmanager
def connected(url: str, role: str = "", pool_size: int = 2) -> Iterator[Engine]:
    """Connections that act in this role, as those of a process of the platform do."""
    engine = db.connect(url, pool_size=pool_size, idle_s=_IDLE_S, role=role)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def patient_transactions() -> Iterator[None]:
    """Lets transactions of this whole process be idle as long, the product's own code too."""
    names = list(signature(db.connect).parameters)[1:]
    values = dict(zip(names, db.connect.__defaults__ or (), strict=True)) | {"idle_s": _IDLE_S}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db.connect, "__defaults__", tuple(values.values()))
        yield


def transact(
    database: Engine, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Calls a function of the store, and commits."""
    with database.begin() as tx:
        return fn(tx, *args, **kwargs)


def execute(database: Engine, sql: str, values: Mapping[str, Any] | None = None) -> None:
    """Executes SQL, and commits."""
    with database.begin() as tx:
        tx.execute(text(sql), values)


def fetch(
    database: Engine, sql: str, values: Mapping[str, Any] | None = None
) -> list[Row[tuple[Any, ...]]]:
    with database.begin() as tx:
        return list(tx.execute(text(sql), values).all())


def scalars(database: Engine, sql: str, values: Mapping[str, Any] | None = None) -> list[Any]:
    return [row[0] for row in fetch(database, sql, values)]


def scalar(database: Engine, sql: str, values: Mapping[str, Any] | None = None) -> Any:
    """Returns the one value of a query of one row."""
    [value] = scalars(database, sql, values)
    return value


def waits_for_lock(database: Engine) -> bool:
    """Returns True while somebody waits for a lock."""
    return bool(scalar(database, "SELECT count(*) FROM pg_locks WHERE NOT granted"))
