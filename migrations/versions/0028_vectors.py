"""Outputs that are vectors, as their bytes: see jobs/vectors.py."""

from alembic import op

revision = "0028"
down_revision = "0027"
oldest_code = "0028"  # older code would read such an output as null

# The same place in both tables: a retry moves whole rows.
_UP = """
ALTER TABLE results ADD COLUMN vector bytea;
ALTER TABLE results ALTER COLUMN vector SET STORAGE EXTERNAL;
ALTER TABLE results_archive ADD COLUMN vector bytea;
"""
_DOWN = """
ALTER TABLE results_archive DROP COLUMN vector;
ALTER TABLE results DROP COLUMN vector;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
