"""Many tenants: who they are, what they may, whose turn it is; roles, and row-level security.

Three roles share the work: the owner of the tables, who migrates; `millrace_api`, which owns
nothing, and sees the rows of the tenant that its transaction names; `millrace_worker` for workers
and keepers, which serve everybody. A process takes its role as it connects (jobs/store/db.py).
"""

from alembic import op

revision = "0004"
down_revision = "0003"

_ROLES = """
-- Roles belong to the server, not to the database: they may be there.
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['millrace_api', 'millrace_worker'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I LOGIN', name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
            END;
        END IF;
        IF NOT pg_has_role(current_user, name, 'MEMBER') THEN
            EXECUTE format('GRANT %I TO current_user', name);
        END IF;
    END LOOP;
END $$;
"""

_TABLES = """
CREATE TABLE tenants (
    tenant_id  text PRIMARY KEY CHECK (tenant_id NOT IN ('', '*')), -- nobody, and everybody
    weight     float8 NOT NULL DEFAULT 1 CHECK (weight > 0), -- of its share
    soft_cap   numeric CHECK (soft_cap >= 0), -- of a month's spend: its webhook is told
    hard_cap   numeric CHECK (hard_cap >= 0), -- and here it ends
    created_at timestamptz NOT NULL DEFAULT now(),
    erased_at  timestamptz -- it has no keys any more, and soon nothing else
);

-- Never deleted: a key that was made ends the open mode for good.
CREATE TABLE api_keys (
    id           uuid PRIMARY KEY,
    tenant_id    text NOT NULL CHECK (tenant_id NOT IN ('', '*')),
    name         text NOT NULL, -- of one that is erased: empty, as is the hint
    hint         text NOT NULL, -- how the key begins, to know it by
    hash         bytea NOT NULL UNIQUE, -- SHA-256 of the key, which has 256 random bits
    role         text NOT NULL CHECK (role IN ('tenant', 'operator', 'admin')),
    scopes       text[] NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    replaced_by  uuid -- the key that it was rotated to
);
CREATE INDEX api_keys_tenant ON api_keys (tenant_id, id DESC);

-- What a tenant, or one of its keys, may use at most; null: as much as it likes.
CREATE TABLE limits (
    tenant_id       text NOT NULL,
    model           text NOT NULL DEFAULT '', -- a name; '': all models together
    key_id          text NOT NULL DEFAULT '', -- of a key, as it is shown; '': all keys together
    requests_per_s  float8 CHECK (requests_per_s > 0),
    tokens_per_s    float8 CHECK (tokens_per_s > 0),
    calls_in_flight int CHECK (calls_in_flight > 0),
    queued_items    bigint CHECK (queued_items > 0),
    stored_bytes    bigint CHECK (stored_bytes > 0),
    job_items       int CHECK (job_items > 0),
    PRIMARY KEY (tenant_id, model, key_id)
);

-- Insert-only: every act of an admin, and every verb.
CREATE TABLE audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    tenant_id  text NOT NULL, -- whose things it was done to
    actor      text NOT NULL, -- a key's id, a token's subject, "cli", or "loopback"
    act        text NOT NULL, -- "job.cancel", "key.create", …
    target     text NOT NULL,
    detail     text NOT NULL, -- JSON
    request_id text NOT NULL
);
CREATE INDEX audit_tenant ON audit (tenant_id, id DESC);

-- Virtual time, in ms of device time by weight: who has had least is next. '': the pool's own.
CREATE TABLE turns (
    pool      text NOT NULL,
    tenant_id text NOT NULL,
    time_ms   float8 NOT NULL,
    PRIMARY KEY (pool, tenant_id)
) WITH (fillfactor = 50);

ALTER TABLE jobs
    ADD COLUMN input_bytes bigint NOT NULL DEFAULT 0, -- as JSON, wherever they lie
    ADD COLUMN output_bytes bigint NOT NULL DEFAULT 0; -- once it has ended
ALTER TABLE slices
    ADD COLUMN due_at timestamptz NOT NULL DEFAULT now(), -- orders those of one tenant
    ADD COLUMN charged_ms real NOT NULL DEFAULT 0, -- of device time, when it was claimed
    ADD COLUMN output_bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE results ADD COLUMN device_us bigint NOT NULL DEFAULT 0; -- its share of its launch
ALTER TABLE results_archive ADD COLUMN device_us bigint NOT NULL DEFAULT 0;

DROP INDEX slices_ready, slices_suspect;
CREATE INDEX slices_ready
    ON slices (model, version, tenant_id, priority DESC, due_at, job_id, start)
    WHERE state = 'ready' AND NOT suspect;
CREATE INDEX slices_suspect
    ON slices (model, version, tenant_id, priority DESC, due_at, job_id, start)
    WHERE state = 'ready' AND suspect;
"""

_TENANTS_ROWS = (
    "jobs", "items", "slices", "results", "results_archive", "attempts", "idempotency_keys",
    "webhook_secrets", "webhook_endpoints", "webhook_deliveries", "deletions", "tenants",
    "api_keys", "limits", "audit", "turns",
)  # fmt: skip

# Who may do what, and no more (tests/integration/jobs/store/test_grants.py).
_API_MAY = {
    "SELECT": "alembic_version, workers, worker_models, launches, items, audit, jobs, slices, "
    "results, attempts, idempotency_keys, webhook_secrets, webhook_endpoints, webhook_deliveries, "
    "deletions, tenants, api_keys, limits",
    "INSERT": "audit, jobs, slices, results, results_archive, idempotency_keys, webhook_secrets, "
    "webhook_deliveries, deletions, tenants, api_keys, limits",
    "UPDATE": "jobs, slices, webhook_secrets, webhook_deliveries, deletions, tenants, api_keys, "
    "limits",
    "DELETE": "jobs, slices, results, attempts, idempotency_keys, webhook_secrets, "
    "webhook_endpoints, webhook_deliveries, limits",
}
_WORKERS_MAY = {
    "SELECT": "alembic_version, workers, worker_models, launches, items, jobs, slices, results, "
    "results_archive, attempts, idempotency_keys, webhook_secrets, webhook_endpoints, "
    "webhook_deliveries, deletions, tenants, limits, turns",
    "INSERT": "audit, workers, worker_models, launches, slices, results, attempts, "
    "webhook_secrets, webhook_endpoints, webhook_deliveries, deletions, turns",
    "UPDATE": "workers, worker_models, jobs, slices, idempotency_keys, webhook_endpoints, "
    "webhook_deliveries, deletions, tenants, turns",
    "DELETE": "workers, worker_models, launches, items, jobs, slices, results, results_archive, "
    "attempts, idempotency_keys, webhook_secrets, webhook_endpoints, webhook_deliveries, "
    "deletions, limits, turns",
}

_SECURITY = """
GRANT USAGE ON SCHEMA public TO millrace_api, millrace_worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO millrace_api, millrace_worker;

-- COPY refuses tables that have policies, and the leaves of items have none: so they take nothing
-- of the api that is not of the tenant that its transaction names.
ALTER TABLE items ADD CONSTRAINT its_own CHECK (
    tenant_id = current_setting('millrace.tenant', true) -- by far the most: first, for COPY
    OR current_setting('millrace.tenant', true) = '*'
    OR current_user <> 'millrace_api') NOT VALID;

-- Only an owner may make and drop partitions: keepers have it done.
CREATE FUNCTION make_week(parent text, name text, low uuid, high uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF name !~ ('^(items|results|attempts)_[0-9]{8}$') OR name !~ ('^' || parent || '_') THEN
        RAISE EXCEPTION '% is no week of %', name, parent;
    END IF;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                   name, parent, low, high);
    EXECUTE format('GRANT SELECT, DELETE ON %I TO millrace_worker', name);
    IF parent = 'items' THEN
        EXECUTE format('GRANT INSERT ON %I TO millrace_api', name);
    END IF;
END $$;
CREATE FUNCTION drop_week(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF name !~ '^(items|results|attempts)_[0-9]{8}$' THEN
        RAISE EXCEPTION '% is no week', name;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS %I', name);
END $$;
REVOKE ALL ON FUNCTION make_week, drop_week FROM PUBLIC;
GRANT EXECUTE ON FUNCTION make_week, drop_week TO millrace_worker;

-- A credential is looked up before anybody knows whose it is.
CREATE FUNCTION find_key(wanted bytea) RETURNS SETOF api_keys
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM api_keys WHERE hash = wanted
$$;
CREATE FUNCTION any_key() RETURNS bool
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM api_keys)
$$;
CREATE FUNCTION use_key(used uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE api_keys SET last_used_at = now() WHERE id = used
$$;
REVOKE ALL ON FUNCTION find_key, any_key, use_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_key, any_key, use_key TO millrace_api;

-- The leaves that there are: as if `make_week` had made them.
DO $$
DECLARE leaf record;
BEGIN
    FOR leaf IN SELECT inhrelid::regclass AS name, inhparent = 'items'::regclass AS of_items
                FROM pg_inherits
                WHERE inhparent IN ('items'::regclass, 'results'::regclass, 'attempts'::regclass)
    LOOP
        EXECUTE format('GRANT SELECT, DELETE ON %s TO millrace_worker', leaf.name);
        IF leaf.of_items THEN
            EXECUTE format('GRANT INSERT ON %s TO millrace_api', leaf.name);
        END IF;
    END LOOP;
END $$;
"""

# A tenant that is not named sees nothing; '*' stands for everybody (jobs/store/tenancy.py).
_POLICIES = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON {table} TO millrace_api
    USING (tenant_id = current_setting('millrace.tenant', true)
           OR current_setting('millrace.tenant', true) = '*');
CREATE POLICY everybodys ON {table} TO millrace_worker USING (true);
"""

_DOWN = """
ALTER TABLE items DROP CONSTRAINT its_own;
DROP FUNCTION make_week, drop_week, find_key, any_key, use_key;
DROP INDEX slices_ready, slices_suspect;
ALTER TABLE results DROP COLUMN device_us;
ALTER TABLE results_archive DROP COLUMN device_us;
ALTER TABLE slices DROP COLUMN due_at, DROP COLUMN charged_ms, DROP COLUMN output_bytes;
ALTER TABLE jobs DROP COLUMN input_bytes, DROP COLUMN output_bytes;
DROP TABLE turns, audit, limits, api_keys, tenants;
CREATE INDEX slices_ready ON slices (model, version, priority DESC, job_id, start)
    WHERE state = 'ready' AND NOT suspect;
CREATE INDEX slices_suspect ON slices (model, version, priority DESC, job_id, start)
    WHERE state = 'ready' AND suspect;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM millrace_api, millrace_worker;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM millrace_api, millrace_worker;
REVOKE ALL ON SCHEMA public FROM millrace_api, millrace_worker;
"""
_NO_POLICIES = """
DROP POLICY its_own ON {table};
DROP POLICY everybodys ON {table};
ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
"""


def upgrade() -> None:
    op.execute(_ROLES)
    op.execute(_TABLES)
    op.execute(_SECURITY)
    for role, rights in (("millrace_api", _API_MAY), ("millrace_worker", _WORKERS_MAY)):
        for right, tables in rights.items():
            op.execute(f"GRANT {right} ON {tables} TO {role}")
    for table in _TENANTS_ROWS:
        op.execute(_POLICIES.format(table=table))


def downgrade() -> None:
    for table in _TENANTS_ROWS:
        op.execute(_NO_POLICIES.format(table=table))
    op.execute(_DOWN)
