"""Durability: deaths, attempts, deliveries, idempotency keys, deletions."""

from alembic import op

revision = "0002"
down_revision = "0001"

_UP = """
-- -- failure isolation: suspect slices are claimed alone

ALTER TABLE slices ADD COLUMN retrying bool NOT NULL DEFAULT false; -- some items have attempts
DROP INDEX slices_ready;
CREATE INDEX slices_ready ON slices (model, version, priority DESC, job_id, start)
    WHERE state = 'ready' AND NOT suspect;
CREATE INDEX slices_suspect ON slices (model, version, priority DESC, job_id, start)
    WHERE state = 'ready' AND suspect;

-- When its supervisor last saw it alive; how it ended: null while it lives, or if nobody saw it.
ALTER TABLE workers
    ADD COLUMN watched_at timestamptz,
    ADD COLUMN died text CHECK (died IN ('killed', 'crashed', 'hung')),
    ADD COLUMN ended_at timestamptz;

-- -- retries: failures that are not final

CREATE TABLE attempts (
    job_id    uuid NOT NULL,
    tenant_id text NOT NULL,
    seq       int NOT NULL,
    n         smallint NOT NULL, -- from 1
    error     text NOT NULL,
    launch_id bigint,
    at        timestamptz NOT NULL DEFAULT now(),
    due_at    timestamptz NOT NULL,
    PRIMARY KEY (job_id, seq, n)
) PARTITION BY RANGE (job_id);
CREATE TABLE attempts_rest PARTITION OF attempts DEFAULT;

-- A result, once written, never changes within its generation: nothing may even try.
CREATE FUNCTION refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'results are insert-only';
END $$;
CREATE TRIGGER results_frozen BEFORE UPDATE ON results
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_update();

-- -- POST /jobs under an Idempotency-Key: the answer that was given

CREATE TABLE idempotency_keys (
    tenant_id   text NOT NULL,
    key         text NOT NULL,
    fingerprint bytea NOT NULL, -- of the request
    job_id      uuid NOT NULL,
    answer      text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- -- webhooks

ALTER TABLE jobs ADD COLUMN webhook_url text;

CREATE TABLE webhook_secrets (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  text NOT NULL,
    sealed     bytea NOT NULL, -- encrypted by MILLRACE_SECRET_KEY
    created_at timestamptz NOT NULL DEFAULT now(),
    shown_at   timestamptz, -- to its tenant, which happens once
    expires_at timestamptz -- set when a newer one took over
);
CREATE INDEX webhook_secrets_tenant ON webhook_secrets (tenant_id, id DESC);

-- One breaker per endpoint; an endpoint that works has no row.
CREATE TABLE webhook_endpoints (
    tenant_id   text NOT NULL,
    url         text NOT NULL,
    failures    int NOT NULL, -- in a row
    failed_at   timestamptz NOT NULL DEFAULT now(),
    open_until  timestamptz,
    disabled_at timestamptz, -- it answered 410
    PRIMARY KEY (tenant_id, url)
);

-- Written in the transaction that ends a job. id is the webhook-id, the same over all tries.
CREATE TABLE webhook_deliveries (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id    text NOT NULL,
    job_id       uuid NOT NULL,
    generation   int NOT NULL,
    url          text NOT NULL,
    type         text NOT NULL,
    job          jsonb NOT NULL, -- the job's row as it ended
    state        text NOT NULL DEFAULT 'pending'
                     CHECK (state IN ('pending', 'delivered', 'failed', 'disabled')),
    tries        int NOT NULL DEFAULT 0,
    due_at       timestamptz NOT NULL DEFAULT now(),
    created_at   timestamptz NOT NULL DEFAULT now(),
    requested_at timestamptz NOT NULL DEFAULT now(), -- its tries began: again at a redelivery
    delivered_at timestamptz,
    last_status  int,
    last_error   text
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_job ON webhook_deliveries (job_id);

-- -- retention

ALTER TABLE jobs
    ADD COLUMN items_pruned bool NOT NULL DEFAULT false,
    ADD COLUMN results_pruned bool NOT NULL DEFAULT false;

CREATE INDEX jobs_with_items ON jobs (id) WHERE NOT items_pruned;
CREATE INDEX jobs_with_results ON jobs (id) WHERE NOT results_pruned;
CREATE INDEX jobs_cancelling ON jobs (id) WHERE state = 'cancelling';
CREATE INDEX idempotency_keys_job ON idempotency_keys (job_id);

-- Jobs that are deleted or past their retention, and still have rows or payloads to be erased.
CREATE TABLE deletions (
    job_id     uuid PRIMARY KEY,
    tenant_id  text NOT NULL,
    total      int NOT NULL,
    erased     int NOT NULL DEFAULT 0, -- the first so many seqs have no rows any more
    deleted_at timestamptz NOT NULL DEFAULT now()
);
"""

_DOWN = """
DROP TABLE deletions, webhook_deliveries, webhook_endpoints, webhook_secrets, idempotency_keys,
    attempts;
DROP TRIGGER results_frozen ON results;
DROP FUNCTION refuse_update;
DROP INDEX jobs_cancelling;
ALTER TABLE jobs DROP COLUMN webhook_url, DROP COLUMN items_pruned, DROP COLUMN results_pruned;
ALTER TABLE workers DROP COLUMN watched_at, DROP COLUMN died, DROP COLUMN ended_at;
DROP INDEX slices_ready, slices_suspect;
CREATE INDEX slices_ready ON slices (model, version, priority DESC, job_id, start)
    WHERE state = 'ready';
ALTER TABLE slices DROP COLUMN retrying;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
