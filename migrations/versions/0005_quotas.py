"""Quotas: the key of a job's submission, and indexes to sum queued and stored work by."""

from alembic import op

revision = "0005"
down_revision = "0004"

_UP = """
ALTER TABLE jobs ADD COLUMN key_id text NOT NULL DEFAULT ''; -- `key_…`, where it came by one

-- A tenant's open slices (they have not finished), and those that it finished lately: both are
-- summed from the index alone.
CREATE INDEX slices_of_tenant ON slices (tenant_id, finished_at)
    INCLUDE (model, start, stop, n_succeeded, n_failed, n_cancelled, n_expired);
CREATE INDEX jobs_stored ON jobs (tenant_id)
    INCLUDE (model, key_id, input_bytes, output_bytes, items_pruned, results_pruned)
    WHERE NOT (items_pruned AND results_pruned);
"""

_DOWN = """
DROP INDEX slices_of_tenant, jobs_stored;
ALTER TABLE jobs DROP COLUMN key_id;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
