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
    tenant_id  text PRIMARY KEY,
    weight     float8 NOT NULL DEFAULT 1 CHECK (weight > 0), -- of its share
    soft_cap   numeric CHECK (soft_cap >= 0), -- of a month's spend: its webhook is told
    hard_cap   numeric CHECK (hard_cap >= 0), -- and here it ends
    created_at timestamptz NOT NULL DEFAULT now(),
    erased_at  timestamptz
);

CREATE TABLE api_keys (
    id           uuid PRIMARY KEY,
    tenant_id    text NOT NULL,
    name         text NOT NULL,
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
ALTER TABLE results ADD COLUMN device_us int NOT NULL DEFAULT 0; -- its share of its launch
ALTER TABLE results_archive ADD COLUMN device_us int NOT NULL DEFAULT 0;

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
    "api_keys", "limits", "audit",
)  # fmt: skip
_WRITTEN_BY_API = (
    "jobs", "slices", "results", "results_archive", "attempts", "idempotency_keys",
    "webhook_secrets", "webhook_endpoints", "webhook_deliveries", "deletions", "tenants",
    "api_keys", "limits",
)  # fmt: skip

_SECURITY = """
GRANT USAGE ON SCHEMA public TO millrace_api, millrace_worker;
GRANT SELECT ON alembic_version, workers, worker_models, launches TO millrace_api;
GRANT SELECT ON items TO millrace_api;
GRANT INSERT ON items_rest TO millrace_api; -- COPY refuses tables that have policies
GRANT SELECT, INSERT ON audit TO millrace_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO millrace_worker;
REVOKE INSERT, UPDATE, DELETE ON alembic_version, api_keys FROM millrace_worker;
REVOKE UPDATE, DELETE ON audit FROM millrace_worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO millrace_api, millrace_worker;

-- Only an owner may make and drop partitions: keepers have it done.
CREATE FUNCTION make_week(parent text, name text, low uuid, high uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF name !~ ('^(items|results|attempts)_[0-9]{8}$') OR name !~ ('^' || parent || '_') THEN
        RAISE EXCEPTION '% is no week of %', name, parent;
    END IF;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                   name, parent, low, high);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO millrace_worker', name);
    IF parent = 'items' THEN
        EXECUTE format('GRANT INSERT ON %I TO millrace_api', name);
    END IF;
END $$;
CREATE FUNCTION drop_week(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT * FROM api_keys WHERE hash = wanted
$$;
CREATE FUNCTION any_key() RETURNS bool
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT FROM api_keys)
$$;
CREATE FUNCTION use_key(used uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE api_keys SET last_used_at = now() WHERE id = used
$$;
REVOKE ALL ON FUNCTION find_key, any_key, use_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_key, any_key, use_key TO millrace_api;

-- The weeks that there are: as if `make_week` had made them.
DO $$
DECLARE leaf regclass;
BEGIN
    FOR leaf IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'items'::regclass LOOP
        EXECUTE format('GRANT INSERT ON %s TO millrace_api', leaf);
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
    op.execute(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(_WRITTEN_BY_API)} TO millrace_api"
    )
    for table in _TENANTS_ROWS:
        op.execute(_POLICIES.format(table=table))


def downgrade() -> None:
    for table in _TENANTS_ROWS:
        op.execute(_NO_POLICIES.format(table=table))
    op.execute(_DOWN)
