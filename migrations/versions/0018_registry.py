"""The registry: artifacts, versions of models, aliases, routes, rollouts."""

from alembic import op

revision = "0018"
down_revision = "0017"

_TABLES = """
CREATE TABLE artifacts (
    digest     text PRIMARY KEY CHECK (digest ~ '^sha256:[0-9a-f]{64}$'), -- of all files' digests
    manifest   text NOT NULL, -- JSON: {"files": [{"path", "size", "sha256"}]}
    bytes      bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL -- as actor of the audit log
);

CREATE TABLE artifact_signatures (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest   text NOT NULL REFERENCES artifacts ON DELETE CASCADE,
    bundle   text NOT NULL, -- JSON: a Sigstore bundle
    added_at timestamptz NOT NULL DEFAULT now(),
    added_by text NOT NULL
);
CREATE INDEX artifact_signatures_digest ON artifact_signatures (digest);

CREATE TABLE model_versions (
    name       text NOT NULL,
    version    text NOT NULL,
    entry      text NOT NULL, -- JSON: as in the models file, but for name and version
    artifact   text REFERENCES artifacts,
    probe      text, -- JSON: inputs, outputs and tolerance of the known-answer probe
    state      text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'retired')),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    PRIMARY KEY (name, version)
);
CREATE INDEX model_versions_artifact ON model_versions (artifact);

-- Versions of the models file have aliases too: no foreign key.
CREATE TABLE model_aliases (
    name       text NOT NULL,
    alias      text NOT NULL,
    version    text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL,
    PRIMARY KEY (name, alias)
);

CREATE TABLE model_routes (
    name       text NOT NULL,
    tenant_id  text NOT NULL, -- '*': all that have no route of their own
    splits     text NOT NULL, -- JSON: [{"version", "percent"}]
    sticky     text NOT NULL DEFAULT '' CHECK (sticky IN ('', 'tenant', 'user')),
    salt       text NOT NULL,
    shadow     text, -- JSON: {"version", "percent"}
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL,
    PRIMARY KEY (name, tenant_id)
);

CREATE TABLE rollouts (
    id         uuid PRIMARY KEY,
    name       text NOT NULL,
    stable     text NOT NULL, -- versions
    canary     text NOT NULL,
    state      text NOT NULL DEFAULT 'running'
               CHECK (state IN ('running', 'held', 'promoted', 'rolled_back')),
    step       int NOT NULL DEFAULT 0, -- index among the steps of its policy
    policy     text NOT NULL, -- JSON: steps in percent, guardrails, shortest stays
    sticky     text NOT NULL DEFAULT '' CHECK (sticky IN ('', 'tenant', 'user')),
    salt       text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    started_by text NOT NULL,
    step_at    timestamptz NOT NULL DEFAULT now(), -- when this step began
    ended_at   timestamptz,
    reason     text NOT NULL DEFAULT '', -- of its state
    CHECK ((ended_at IS NULL) = (state IN ('running', 'held')))
);
CREATE UNIQUE INDEX rollouts_open ON rollouts (name) WHERE ended_at IS NULL;
CREATE INDEX rollouts_newest ON rollouts (name, started_at DESC);

CREATE TABLE rollout_events (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rollout_id uuid NOT NULL REFERENCES rollouts ON DELETE CASCADE,
    at         timestamptz NOT NULL DEFAULT now(),
    act        text NOT NULL,
    reason     text NOT NULL DEFAULT '',
    figures    text NOT NULL DEFAULT '{}' -- JSON
);
CREATE INDEX rollout_events_rollout ON rollout_events (rollout_id, id DESC);
"""

# A version is what it was registered as; what may change under it is what may change in the models
# file: price and adapters. A probe may be added once.
_TRIGGERS = """
CREATE FUNCTION refuse_changed_version() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.name, NEW.version, NEW.artifact, NEW.created_at, NEW.created_by)
           IS DISTINCT FROM
           (OLD.name, OLD.version, OLD.artifact, OLD.created_at, OLD.created_by)
       OR (NEW.probe IS DISTINCT FROM OLD.probe AND OLD.probe IS NOT NULL)
       OR NEW.entry::jsonb - '{price,adapters}'::text[]
           <> OLD.entry::jsonb - '{price,adapters}'::text[] THEN
        RAISE EXCEPTION '%@% is registered: a version never changes', OLD.name, OLD.version;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER model_versions_frozen BEFORE UPDATE ON model_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_changed_version();

-- Changes are rare: the lock of a NOTIFY at the commit costs nothing here.
CREATE FUNCTION notify_models() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM pg_notify('millrace_models', '');
    RETURN NULL;
END $$;
"""

_FOLLOWED = ("artifact_signatures", "model_versions", "model_aliases", "model_routes", "rollouts")

_RIGHTS = """
GRANT SELECT ON artifacts, artifact_signatures, model_versions, model_aliases, model_routes,
    rollouts, rollout_events TO millrace_api, millrace_worker;
GRANT INSERT ON artifacts, artifact_signatures, model_versions, model_aliases, model_routes,
    rollouts, rollout_events TO millrace_api;
GRANT UPDATE (entry, probe, state) ON model_versions TO millrace_api;
GRANT UPDATE, DELETE ON model_aliases, model_routes TO millrace_api;
GRANT UPDATE ON rollouts TO millrace_api;
-- Workers record probes; keepers move rollouts, and the alias of one that is promoted; they erase
-- the routes of tenants.
GRANT UPDATE (probe) ON model_versions TO millrace_worker;
GRANT INSERT, UPDATE ON model_aliases TO millrace_worker;
GRANT DELETE ON model_routes TO millrace_worker;
GRANT UPDATE ON rollouts TO millrace_worker;
GRANT INSERT ON rollout_events TO millrace_worker;
"""

# As in 0004.
_POLICIES = """
ALTER TABLE model_routes ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON model_routes TO millrace_api
    USING (tenant_id = current_setting('millrace.tenant', true)
           OR current_setting('millrace.tenant', true) = '*');
CREATE POLICY everybodys ON model_routes TO millrace_worker USING (true);
"""


def upgrade() -> None:
    op.execute(_TABLES)
    op.execute(_TRIGGERS)
    for table in _FOLLOWED:
        op.execute(
            f"CREATE TRIGGER {table}_notify AFTER INSERT OR UPDATE OR DELETE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION notify_models()"
        )
    op.execute(_RIGHTS)
    op.execute(_POLICIES)


def downgrade() -> None:
    op.execute(
        "DROP TABLE rollout_events, rollouts, model_routes, model_aliases, model_versions, "
        "artifact_signatures, artifacts"
    )
    op.execute("DROP FUNCTION refuse_changed_version, notify_models")
