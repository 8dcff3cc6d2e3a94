"""Kills of the processes that import and export, apart from their own crashes."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute("ALTER TABLE transfers ADD COLUMN kills integer NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE transfers DROP COLUMN kills")
