"""Events of rollouts name who acted."""

from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.execute("ALTER TABLE rollout_events ADD COLUMN actor text NOT NULL DEFAULT ''")


def downgrade() -> None:
    op.execute("ALTER TABLE rollout_events DROP COLUMN actor")
