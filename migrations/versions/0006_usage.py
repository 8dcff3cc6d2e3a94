"""Usage and spend: the ledger, the sums of each month, notices of them."""

from alembic import op

revision = "0006"
down_revision = "0005"

_UP = """
-- Insert-only: what was used, written once, by the transaction that wrote its results. One row a
-- slice and settlement; one a minute of a tenant's calls to a model.
CREATE TABLE usage (
    at        timestamptz NOT NULL DEFAULT now(), -- of calls: the minute
    tenant_id text NOT NULL,
    kind      text NOT NULL CHECK (kind IN ('items', 'calls')),
    job_id    uuid, -- of items
    start     int, -- their slice
    model     text NOT NULL,
    version   text NOT NULL,
    class     text NOT NULL,
    succeeded bigint NOT NULL,
    failed    bigint NOT NULL,
    units     bigint NOT NULL, -- of what succeeded
    device_us bigint NOT NULL, -- of all
    amount    numeric NOT NULL,
    CHECK ((kind = 'items') = (job_id IS NOT NULL AND start IS NOT NULL))
);
CREATE INDEX usage_tenant ON usage (tenant_id, at);
-- A minute is moved here from Redis once, however often it is tried.
CREATE UNIQUE INDEX usage_calls ON usage (at, tenant_id, model, version, class)
    WHERE kind = 'calls';

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is insert-only';
END $$;
CREATE TRIGGER usage_frozen BEFORE UPDATE OR DELETE ON usage
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Added to beside the ledger, summed up by keepers: a month's spend is the sum of a few rows.
CREATE TABLE spend (
    tenant_id text NOT NULL,
    month     date NOT NULL, -- its first day, UTC
    amount    numeric NOT NULL
);
CREATE INDEX spend_month ON spend (tenant_id, month);

-- Once a month for each share of the soft cap.
CREATE TABLE spend_told (
    tenant_id text NOT NULL,
    month     date NOT NULL,
    percent   int NOT NULL,
    told_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, month, percent)
);

-- What a tenant is told as such, beside what its jobs tell.
ALTER TABLE tenants ADD COLUMN webhook_url text;
ALTER TABLE webhook_deliveries
    ALTER COLUMN job_id DROP NOT NULL,
    ALTER COLUMN generation DROP NOT NULL;
ALTER TABLE webhook_deliveries RENAME COLUMN job TO about; -- the job's row as it ended, or the data
CREATE INDEX webhook_deliveries_tenant ON webhook_deliveries (tenant_id, created_at)
    WHERE job_id IS NULL;

-- Jobs that were there before the ledger are not all in it.
ALTER TABLE jobs ADD COLUMN billed bool NOT NULL DEFAULT false;
ALTER TABLE jobs ALTER COLUMN billed SET DEFAULT true;

GRANT SELECT ON usage, spend TO millrace_api;
GRANT SELECT, INSERT ON usage TO millrace_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON spend, spend_told TO millrace_worker; -- UPDATE: to lock
"""

_DOWN = """
ALTER TABLE jobs DROP COLUMN billed;
DROP INDEX webhook_deliveries_tenant;
DELETE FROM webhook_deliveries WHERE job_id IS NULL;
ALTER TABLE webhook_deliveries RENAME COLUMN about TO job;
ALTER TABLE webhook_deliveries
    ALTER COLUMN job_id SET NOT NULL,
    ALTER COLUMN generation SET NOT NULL;
ALTER TABLE tenants DROP COLUMN webhook_url;
DROP TABLE spend_told, spend, usage;
DROP FUNCTION refuse_change;
"""

_TENANTS_ROWS = ("usage", "spend", "spend_told")

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
    for table in _TENANTS_ROWS:
        op.execute(_POLICIES.format(table=table))


def downgrade() -> None:
    op.execute(_DOWN)
