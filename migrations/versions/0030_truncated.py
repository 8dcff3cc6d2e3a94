"""Tokens that were cut away from a text, by result; items with such a text, by slice and job."""

from alembic import op

revision = "0030"
down_revision = "0029"
oldest_code = "0028"

# The same place in both tables: a retry moves whole rows.
_UP = """
ALTER TABLE results ADD COLUMN truncated int; -- null: none
ALTER TABLE results_archive ADD COLUMN truncated int;
ALTER TABLE slices ADD COLUMN n_truncated int NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN n_truncated int NOT NULL DEFAULT 0;
"""
_DOWN = """
ALTER TABLE jobs DROP COLUMN n_truncated;
ALTER TABLE slices DROP COLUMN n_truncated;
ALTER TABLE results_archive DROP COLUMN truncated;
ALTER TABLE results DROP COLUMN truncated;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
