"""Columns and tables as the schema repeats them: keys, times, counts."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP

metadata = sa.MetaData()
"""Tables of the schema."""
Time = TIMESTAMP(timezone=True)
"""Type of points in time."""


def table(name: str, *parts: Any, **options: Any) -> sa.Table:
    """Table of this schema."""
    return sa.Table(name, metadata, *parts, **options)


def nullable(type: Any, *names: str) -> Sequence[sa.Column[Any]]:
    """Columns that may be null."""
    return [sa.Column(name, type) for name in names]


def required(type: Any, *names: str, default: str | None = None) -> Sequence[sa.Column[Any]]:
    """Columns that are never null. default: SQL."""
    server_default = None if default is None else sa.text(default)
    return [sa.Column(name, type, nullable=False, server_default=server_default) for name in names]


def times(*names: str) -> Sequence[sa.Column[Any]]:
    """Times that are set when the row is inserted."""
    return required(Time, *names, default="now()")


def counts(*names: str, type: Any = sa.Integer) -> Sequence[sa.Column[Any]]:
    """Numbers that begin at 0."""
    return required(type, *names, default="0")


def key(type: Any, *names: str, **options: Any) -> Sequence[sa.Column[Any]]:
    """Columns of the primary key."""
    return [
        sa.Column(name, type, primary_key=True, autoincrement=False, **options) for name in names
    ]


def number(name: str = "id") -> sa.Column[Any]:
    """A primary key that the database counts up."""
    return sa.Column(name, sa.BigInteger, sa.Identity(always=True), primary_key=True)


def job_class() -> sa.Column[Any]:
    """Column `class`, which is a word of Python."""
    return sa.Column("class", sa.Text, key="job_class", nullable=False)
