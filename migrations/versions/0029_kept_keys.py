"""Idempotency keys of deleted jobs: kept until they lapse, without the answer."""

from alembic import op

revision = "0029"
down_revision = "0028"
oldest_code = "0028"


def upgrade() -> None:
    op.execute("GRANT UPDATE (answer) ON idempotency_keys TO millrace_api")


def downgrade() -> None:
    # Code of before would answer with the emptied body.
    op.execute("DELETE FROM idempotency_keys WHERE answer = ''")
    op.execute("REVOKE UPDATE (answer) ON idempotency_keys FROM millrace_api")
