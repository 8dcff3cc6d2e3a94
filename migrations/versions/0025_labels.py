"""Names and labels of jobs."""

from alembic import op

revision = "0025"
down_revision = "0024"

# No table is rewritten: jobs of releases before this one have neither. Pairs have a table of their
# own: under row-level security PostgreSQL uses an index only by operators that are leakproof, such
# as equality of texts, and containment of jsonb isn't one. They go with their job, whichever
# release deletes it.
_UP = """
ALTER TABLE jobs ADD COLUMN name text,
    ADD COLUMN labels text; -- JSON object
CREATE TABLE job_labels (
    job_id    uuid NOT NULL REFERENCES jobs ON DELETE CASCADE,
    key       text NOT NULL,
    value     text NOT NULL,
    tenant_id text NOT NULL,
    PRIMARY KEY (job_id, key)
);
CREATE INDEX job_labels_newest ON job_labels (tenant_id, key, value, job_id DESC);
GRANT SELECT, INSERT ON job_labels TO millrace_api;
"""

# As in 0004; workers and keepers don't look for jobs.
_POLICY = """
ALTER TABLE job_labels ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON job_labels TO millrace_api
    USING (tenant_id = current_setting('millrace.tenant', true)
           OR current_setting('millrace.tenant', true) = '*');
"""


def upgrade() -> None:
    op.execute(_UP)
    op.execute(_POLICY)


def downgrade() -> None:
    op.execute("DROP TABLE job_labels")
    op.execute("ALTER TABLE jobs DROP COLUMN name, DROP COLUMN labels")
