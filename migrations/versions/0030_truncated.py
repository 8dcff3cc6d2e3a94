"""Tokens that were cut away from a text, by result; items with such a text, by slice and job."""

from collections.abc import Iterable

from alembic import op

revision = "0030"
down_revision = "0029"
oldest_code = "0028"

# The same place in both tables of results: a retry moves whole rows.
_COLUMNS = {
    "results": "truncated int",  # null: none
    "results_archive": "truncated int",
    "slices": "n_truncated int NOT NULL DEFAULT 0",
    "jobs": "n_truncated int NOT NULL DEFAULT 0",
}


def upgrade() -> None:
    _execute(
        f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column}"
        for table, column in _COLUMNS.items()
    )


def downgrade() -> None:
    _execute(
        f"ALTER TABLE {table} DROP COLUMN IF EXISTS {column.split()[0]}"
        for table, column in _COLUMNS.items()
    )


def _execute(statements: Iterable[str]) -> None:
    """Commits each statement by itself: none holds a table while it waits for another one, which a
    settlement takes before. Those of a migration that ended half-way are repeated."""
    with op.get_context().autocommit_block():
        for statement in statements:
            op.execute(statement)
