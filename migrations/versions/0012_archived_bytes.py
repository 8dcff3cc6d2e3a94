"""Size of a job's archived results, which its tenant stores too."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("ALTER TABLE jobs ADD COLUMN archived_bytes bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE jobs DROP COLUMN archived_bytes")
