"""The oldest code that may use the schema: it goes on while the rest of a fleet is upgraded."""

from alembic import op

revision = "0027"
down_revision = "0026"
oldest_code = "0026"


def upgrade() -> None:
    op.execute("ALTER TABLE alembic_version ADD COLUMN oldest_code text")


def downgrade() -> None:
    op.execute("ALTER TABLE alembic_version DROP COLUMN oldest_code")
