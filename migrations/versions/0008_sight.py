"""Traces of jobs, the last worker of a slice, requests to drain a worker."""

from alembic import op

revision = "0008"
down_revision = "0007"

_UP = """
ALTER TABLE jobs ADD COLUMN traceparent text; -- W3C trace context of the request that made it
ALTER TABLE slices
    ADD COLUMN worker     bigint,      -- the incarnation that claimed it last
    ADD COLUMN claimed_at timestamptz; -- when
ALTER TABLE workers ADD COLUMN drain_asked_at timestamptz; -- it is to take no more work
GRANT UPDATE (drain_asked_at) ON workers TO millrace_api;
ALTER TABLE launches ADD COLUMN batch_ms real; -- from closing it until the device had it
-- Whether a keeper has counted it; nobody counts those of before.
ALTER TABLE workers ADD COLUMN death_told bool NOT NULL DEFAULT true;
ALTER TABLE workers ALTER COLUMN death_told SET DEFAULT false;
"""

_DOWN = """
REVOKE UPDATE (drain_asked_at) ON workers FROM millrace_api;
ALTER TABLE workers DROP COLUMN drain_asked_at;
ALTER TABLE jobs DROP COLUMN traceparent;
ALTER TABLE slices DROP COLUMN worker, DROP COLUMN claimed_at;
ALTER TABLE launches DROP COLUMN batch_ms;
ALTER TABLE workers DROP COLUMN death_told;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
