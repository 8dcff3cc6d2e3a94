"""Sessions of the dashboard that were ended before their time."""

from alembic import op

revision = "0009"
down_revision = "0008"

_UP = """
CREATE TABLE ended_sessions (
    id      text PRIMARY KEY,     -- random; the cookie has it too
    ends_at timestamptz NOT NULL  -- when the cookie is no longer valid by itself
);
GRANT SELECT, INSERT ON ended_sessions TO millrace_api;
GRANT SELECT, DELETE ON ended_sessions TO millrace_worker;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute("DROP TABLE ended_sessions")
