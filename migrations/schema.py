"""The schema that a database has, held against the one of this code. Without alembic: its import is
slow, and each api asks at every probe."""

from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, text

HEAD = max(path.name[:4] for path in (Path(__file__).parent / "versions").glob("[0-9]*.py"))
"""Newest revision that this code knows."""

_TABLE = text("SELECT to_regclass('alembic_version') IS NOT NULL")
# As JSON, since the column is missing before revision 0027.
_VERSION = text("SELECT version_num, to_jsonb(v) ->> 'oldest_code' FROM alembic_version v")


class Schema(NamedTuple):
    """Schema of a database, by revisions of the migrations."""

    revision: str  # "": nothing was migrated yet
    oldest_code: str  # the HEAD of the oldest code that may use it

    @property
    def behind(self) -> bool:
        """True while a migration that this code needs is missing."""
        return self.revision < HEAD

    @property
    def problem(self) -> str:
        """The reason for which this code may not use the schema, and what to do; "" if it may."""
        if self.behind:
            return "the database is not migrated: run `millrace migrate`"
        if self.oldest_code > HEAD:
            return (
                f"the database was migrated to revision {self.revision}, which code before "
                f"{self.oldest_code} can't use, and this is {HEAD}: install the newer release"
            )
        return ""


def read(engine: Engine) -> Schema:
    """Reads the schema's revisions. Raises SQLAlchemyError."""
    with engine.connect() as connection:
        if not connection.scalars(_TABLE).one():
            return Schema("", "")
        row = connection.execute(_VERSION).one_or_none()
    return Schema(row[0], row[1] or row[0]) if row else Schema("", "")
