"""Spot workers: the notice that they have, and by which notice they were reclaimed."""

from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.execute("ALTER TABLE workers ADD COLUMN spot_notice_s real NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE workers ADD COLUMN reclaimed_by text")  # a notice; none: silence


def downgrade() -> None:
    op.execute("ALTER TABLE workers DROP COLUMN spot_notice_s, DROP COLUMN reclaimed_by")
