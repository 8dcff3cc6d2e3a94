"""Prepared inputs of items, for models that leave preparation to workers of their own."""

from alembic import op

revision = "0024"
down_revision = "0023"

# Rows live for seconds, and what they refer to can be made again: they aren't logged, and vacuum
# must not wait for a share of the table.
_UP = """
CREATE UNLOGGED TABLE prepared (
    job_id    uuid NOT NULL,
    seq       int NOT NULL,
    tenant_id text NOT NULL,
    version   text NOT NULL, -- of the model that it was prepared for
    place     text NOT NULL, -- of its bytes: @key sha256 bytes in the blob store, a key of Redis
    PRIMARY KEY (job_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
GRANT SELECT, DELETE ON prepared TO millrace_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON prepared TO millrace_worker;
"""

# As in 0004.
_POLICIES = """
ALTER TABLE prepared ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON prepared TO millrace_api
    USING (tenant_id = current_setting('millrace.tenant', true)
           OR current_setting('millrace.tenant', true) = '*');
CREATE POLICY everybodys ON prepared TO millrace_worker USING (true);
"""


def upgrade() -> None:
    op.execute(_UP)
    op.execute(_POLICIES)


def downgrade() -> None:
    op.execute("DROP TABLE prepared")
