"""Files, imports and exports of jobs, dialects."""

from alembic import op

revision = "0007"
down_revision = "0006"

_UP = """
-- What tenants handed in, and what was written for them. The bytes lie in the blob store, at `key`.
CREATE TABLE files (
    id         uuid PRIMARY KEY,
    tenant_id  text NOT NULL,
    purpose    text NOT NULL, -- "batch", "batch_output", …
    filename   text NOT NULL,
    bytes      bigint NOT NULL,
    sha256     bytea NOT NULL,
    key        text NOT NULL,
    key_id     text NOT NULL DEFAULT '', -- the API key that it came by
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    complete   bool NOT NULL DEFAULT true -- false while its bytes are on their way
);
CREATE INDEX files_tenant ON files (tenant_id, id DESC);
CREATE INDEX files_expiry ON files (expires_at) WHERE expires_at IS NOT NULL;

ALTER TABLE jobs
    ADD COLUMN dialect  text NOT NULL DEFAULT 'native', -- who words its items and results
    ADD COLUMN asked    text, -- JSON: what its door was asked beyond a job's own words
    ADD COLUMN source   text, -- JSON: where its items come from; null: the request
    ADD COLUMN target   text, -- JSON: what its results are written to; null: nothing
    ADD COLUMN manifest text, -- JSON: what was written, once it is
    ADD COLUMN queued_at timestamptz,     -- where that was later than created_at: it was read in
    ADD COLUMN cancelling_at timestamptz, -- a cancel was asked for
    ADD COLUMN written_at timestamptz;    -- its manifest was
-- One whose input is not read yet, or never could be, has none.
ALTER TABLE jobs DROP CONSTRAINT jobs_total_check, ADD CONSTRAINT jobs_total_check CHECK (
    total >= CASE WHEN state IN ('validating', 'failed', 'cancelled', 'expired') THEN 0 ELSE 1 END);
-- How its door words the answer to an item, where that isn't the same for all of a job; JSON.
ALTER TABLE items ADD COLUMN reply text;
-- How many inputs an item stands for on average, rounded up: it may be a list of texts to embed.
ALTER TABLE slices ADD COLUMN inputs int NOT NULL DEFAULT 1;

-- Jobs on their way in from a source, or out to a target. A row is gone when it is done.
CREATE TABLE transfers (
    job_id      uuid NOT NULL,
    tenant_id   text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('import', 'export')),
    generation  int NOT NULL,
    tries       int NOT NULL DEFAULT 0,
    deaths      int NOT NULL DEFAULT 0, -- claims in a row whose process ended without a word
    claimed_at  timestamptz,            -- null: it waits
    due_at      timestamptz NOT NULL DEFAULT now(), -- or, of one that runs, its lease's end
    epoch       bigint NOT NULL DEFAULT 0, -- the fence: only the last claimant writes
    last_error  text,
    PRIMARY KEY (job_id, kind)
);
CREATE INDEX transfers_due ON transfers (due_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON files TO millrace_api, millrace_worker;
GRANT SELECT, INSERT, DELETE ON transfers TO millrace_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON transfers TO millrace_worker;
"""

# Keepers read the items of jobs that come from a source: they may add to the leaves of items, as
# the api may (0004).
_MAKE_WEEK = """
CREATE OR REPLACE FUNCTION make_week(parent text, name text, low uuid, high uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF name !~ ('^(items|results|attempts)_[0-9]{{8}}$') OR name !~ ('^' || parent || '_') THEN
        RAISE EXCEPTION '% is no week of %', name, parent;
    END IF;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                   name, parent, low, high);
    EXECUTE format('GRANT SELECT, DELETE ON %I TO millrace_worker', name);
    IF parent = 'items' THEN
        EXECUTE format('GRANT INSERT ON %I TO {adders}', name);
    END IF;
END $$;
DO $$
DECLARE leaf regclass;
BEGIN
    FOR leaf IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'items'::regclass LOOP
        EXECUTE format('{change} millrace_worker', leaf);
    END LOOP;
END $$;
"""

_DOWN = """
DROP TABLE transfers, files;
ALTER TABLE items DROP COLUMN reply;
ALTER TABLE slices DROP COLUMN inputs;
DELETE FROM jobs WHERE total = 0;
ALTER TABLE jobs DROP CONSTRAINT jobs_total_check,
    ADD CONSTRAINT jobs_total_check CHECK (total > 0);
ALTER TABLE jobs
    DROP COLUMN dialect, DROP COLUMN asked, DROP COLUMN source, DROP COLUMN target,
    DROP COLUMN manifest, DROP COLUMN queued_at, DROP COLUMN cancelling_at, DROP COLUMN written_at;
"""

_TENANTS_ROWS = ("files", "transfers")

# As in 0004.
_POLICIES = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON {table} TO millrace_api
    USING (tenant_id = current_setting('millrace.tenant', true)
           OR current_setting('millrace.tenant', true) = '*');
CREATE POLICY everybodys ON {table} TO millrace_worker USING (true);
"""


def upgrade() -> None:
    op.execute(_UP)
    make_week = _MAKE_WEEK.format(
        adders="millrace_api, millrace_worker", change="GRANT INSERT ON %s TO"
    )
    op.execute(make_week)
    for table in _TENANTS_ROWS:
        op.execute(_POLICIES.format(table=table))


def downgrade() -> None:
    op.execute(_DOWN)
    op.execute(_MAKE_WEEK.format(adders="millrace_api", change="REVOKE INSERT ON %s FROM"))
