"""Kinds of columns that many tables have."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import REAL, BigInteger, Column, Integer, MetaData, SmallInteger, Text, text
from sqlalchemy.dialects.postgresql import ENUM, TIMESTAMP

metadata = MetaData()

Time = TIMESTAMP(timezone=True)
NOW, EMPTY, ZERO = text("now()"), text("''"), text("0")
TRUE, FALSE = text("true"), text("false")
_OUTCOME = ENUM(
    "succeeded", "failed", "cancelled", "expired", name="outcome", metadata=metadata
)  # fmt: skip


def column(name: str, type: Any, default: Any = None, **options: Any) -> Column[Any]:
    """A column that is never null."""
    return Column(name, type, nullable=False, server_default=default, **options)


def key(name: str, type: Any, **options: Any) -> Column[Any]:
    """A column of the primary key."""
    return Column(name, type, primary_key=True, autoincrement=False, **options)


def counts() -> Sequence[Column[Any]]:
    """Numbers of items by their outcome."""
    names = ("n_succeeded", "n_failed", "n_cancelled", "n_expired")
    return [column(name, Integer, ZERO) for name in names]


def result_columns() -> Sequence[Column[Any]]:
    """Columns of a result that follow its key."""
    return [
        column("tenant_id", Text),
        column("outcome", _OUTCOME),
        column("attempts", SmallInteger),
        column("units", Integer),
        Column("wait_ms", REAL),
        Column("launch_id", BigInteger),
        Column("error", Text),
        Column("output", Text),
        column("device_us", BigInteger, ZERO),
    ]
