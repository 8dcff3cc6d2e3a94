"""Checkpoints: output so far of items that are being generated."""

from alembic import op

revision = "0016"
down_revision = "0015"

# Rows are added every second and deleted when their item ends: vacuum must not wait for a share of
# the table.
_UP = """
CREATE TABLE checkpoints (
    job_id        uuid NOT NULL,
    seq           int NOT NULL,
    choice        int NOT NULL,
    position      int NOT NULL, -- of the first of these tokens among those of its choice
    tenant_id     text NOT NULL,
    tokens        int[] NOT NULL,
    text          text NOT NULL, -- that was final with the last of these tokens
    logprobs      text, -- JSON: an array of [token, text, logprob, top]; null: not requested
    finish_reason text, -- of a choice that has ended, in its last row
    stopped_by    text,
    cached_tokens int NOT NULL DEFAULT 0, -- of the prompt, in the first row of a choice
    device_us     bigint NOT NULL DEFAULT 0, -- of the item, since its rows before
    PRIMARY KEY (job_id, seq, choice, position)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
GRANT SELECT, DELETE ON checkpoints TO millrace_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON checkpoints TO millrace_worker;
"""

# As in 0004.
_POLICIES = """
ALTER TABLE checkpoints ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON checkpoints TO millrace_api
    USING (tenant_id = current_setting('millrace.tenant', true)
           OR current_setting('millrace.tenant', true) = '*');
CREATE POLICY everybodys ON checkpoints TO millrace_worker USING (true);
"""


def upgrade() -> None:
    op.execute(_UP)
    op.execute(_POLICIES)


def downgrade() -> None:
    op.execute("DROP TABLE checkpoints")
