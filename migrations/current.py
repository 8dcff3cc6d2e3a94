"""The check that a database has the schema of this code, without alembic: its import is slow."""

from pathlib import Path

from sqlalchemy import Engine, text

HEAD = max(path.name[:4] for path in (Path(__file__).parent / "versions").glob("[0-9]*.py"))
"""Newest revision."""

_TABLE = text("SELECT to_regclass('alembic_version') IS NOT NULL")
_REVISION = text("SELECT version_num FROM alembic_version")


def is_current(engine: Engine) -> bool:
    """Returns True if the database has the schema that this code was written for."""
    with engine.connect() as connection:
        if not connection.scalars(_TABLE).one():
            return False
        return connection.scalars(_REVISION).all() == [HEAD]
