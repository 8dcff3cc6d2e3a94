"""Jobs, items, slices, results, workers and launches."""

from alembic import op

revision = "0001"
down_revision = None

_UP = """
CREATE TYPE outcome AS ENUM ('succeeded', 'failed', 'cancelled', 'expired');

CREATE TABLE jobs (
    id          uuid PRIMARY KEY,
    tenant_id   text NOT NULL,
    model       text NOT NULL,
    version     text NOT NULL,
    class       text NOT NULL CHECK (class IN ('interactive', 'standard', 'bulk')),
    priority    int NOT NULL CHECK (priority BETWEEN -100 AND 100),
    state       text NOT NULL CHECK (state IN ('validating', 'queued', 'running', 'paused',
                    'cancelling', 'completed', 'cancelled', 'expired', 'failed')),
    params      text NOT NULL,
    metadata    text NOT NULL,
    custom_ids  bool NOT NULL, -- whether any item has one
    total       int NOT NULL CHECK (total > 0),
    generation  int NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT now(),
    started_at  timestamptz,
    finished_at timestamptz,
    expires_in_s float8,
    expires_at  timestamptz,
    error       text,
    -- frozen when the job ends; before that they are the sums over its slices
    n_succeeded int NOT NULL DEFAULT 0,
    n_failed    int NOT NULL DEFAULT 0,
    n_cancelled int NOT NULL DEFAULT 0,
    n_expired   int NOT NULL DEFAULT 0
);
CREATE INDEX jobs_newest ON jobs (tenant_id, id DESC);
CREATE INDEX jobs_open ON jobs (expires_at) WHERE finished_at IS NULL;

-- Never updated. Split by job_id, whose first bits are its time: retention is a drop.
CREATE TABLE items (
    job_id    uuid NOT NULL,
    tenant_id text NOT NULL,
    seq       int NOT NULL,
    custom_id text,
    params    text,
    input     text NOT NULL,
    PRIMARY KEY (job_id, seq)
) PARTITION BY RANGE (job_id);
ALTER TABLE items ALTER COLUMN input SET STORAGE EXTERNAL;
CREATE TABLE items_rest PARTITION OF items DEFAULT;

-- The only rows that are updated often: one per second or two of device time.
CREATE TABLE slices (
    job_id      uuid NOT NULL,
    start       int NOT NULL,
    stop        int NOT NULL CHECK (stop > start),
    tenant_id   text NOT NULL,
    model       text NOT NULL,
    version     text NOT NULL,
    priority    int NOT NULL,
    state       text NOT NULL DEFAULT 'ready'
                    CHECK (state IN ('ready', 'leased', 'held', 'done')),
    not_before  timestamptz NOT NULL DEFAULT now(),
    epoch       int NOT NULL DEFAULT 0,
    lease_owner bigint,
    lease_until timestamptz,
    deaths      int NOT NULL DEFAULT 0,
    suspect     bool NOT NULL DEFAULT false,
    finished_at timestamptz,
    n_succeeded int NOT NULL DEFAULT 0,
    n_failed    int NOT NULL DEFAULT 0,
    n_cancelled int NOT NULL DEFAULT 0,
    n_expired   int NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, start)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX slices_ready ON slices (model, version, priority DESC, job_id, start)
    WHERE state = 'ready';
CREATE INDEX slices_open ON slices (job_id, start) WHERE state <> 'done';
CREATE INDEX slices_leased ON slices (lease_until) WHERE state = 'leased';

-- Insert-only: a result, once written, never changes within its generation.
CREATE TABLE results (
    job_id    uuid NOT NULL,
    tenant_id text NOT NULL,
    seq       int NOT NULL,
    outcome   outcome NOT NULL,
    attempts  smallint NOT NULL,
    units     int NOT NULL,
    wait_ms   real,
    launch_id bigint,
    error     text,
    output    text,
    PRIMARY KEY (job_id, seq)
) PARTITION BY RANGE (job_id);
ALTER TABLE results ALTER COLUMN output SET STORAGE EXTERNAL;
CREATE TABLE results_rest PARTITION OF results DEFAULT;

-- What a generation left behind when `retry` started the next one.
CREATE TABLE results_archive (generation int NOT NULL, LIKE results);
CREATE INDEX results_archive_job ON results_archive (job_id, seq, generation);

-- A worker is an incarnation: one that starts again is another one, and inherits no lease.
CREATE TABLE workers (
    incarnation  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL,
    pool         text NOT NULL,
    device       text NOT NULL,
    models       text[] NOT NULL,
    state        text NOT NULL CHECK (state IN
                     ('loading', 'ready', 'draining', 'stopped', 'lost')),
    started_at   timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now()
);

-- Every launch that had items in it; id = incarnation * 2^32 + number.
CREATE TABLE launches (
    id            bigint PRIMARY KEY,
    incarnation   bigint NOT NULL,
    model         text NOT NULL,
    version       text NOT NULL,
    bucket        int NOT NULL,
    reason        text NOT NULL,
    items         int NOT NULL,
    calls         int NOT NULL,
    units         int NOT NULL,
    padded_units  int NOT NULL,
    predicted_ms  real NOT NULL,
    engine_ms     real NOT NULL,
    started_at    timestamptz NOT NULL
);
"""

_DOWN = """
DROP TABLE jobs, items, slices, results, results_archive, workers, launches;
DROP TYPE outcome;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
