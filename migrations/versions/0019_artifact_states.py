"""Steps before a load, contents of artifacts that are removed, bases of adapters, and probes that
are recorded anew."""

from alembic import op

revision = "0019"
down_revision = "0018"

_STATES = """
ALTER TABLE worker_models
    DROP CONSTRAINT worker_models_state_check,
    ADD CONSTRAINT worker_models_state_check CHECK (state IN ('absent', 'verifying', 'staging',
        'loading', 'warming', 'ready', 'draining', 'failed'));

ALTER TABLE artifacts
    ADD COLUMN base text NOT NULL DEFAULT '', -- of an adapter: its base's artifact, or name@version
    -- of the contents in the blob store
    ADD COLUMN state text NOT NULL DEFAULT 'stored'
        CHECK (state IN ('stored', 'erasing', 'erased')),
    ADD COLUMN pushed_at timestamptz NOT NULL DEFAULT now(); -- the latest time

ALTER TABLE model_versions ADD COLUMN retired_at timestamptz; -- NULL: it is active
UPDATE model_versions SET retired_at = now() WHERE state = 'retired';
"""

# As in 0018; besides, the probe of a retired version may be recorded anew, and the moment of a
# retirement is recorded whoever retires it.
_TRIGGER = """
CREATE OR REPLACE FUNCTION refuse_changed_version() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.name, NEW.version, NEW.artifact, NEW.created_at, NEW.created_by)
           IS DISTINCT FROM
           (OLD.name, OLD.version, OLD.artifact, OLD.created_at, OLD.created_by)
       OR (NEW.probe IS DISTINCT FROM OLD.probe AND OLD.probe IS NOT NULL
           AND OLD.state <> 'retired')
       OR NEW.entry::jsonb - '{price,adapters}'::text[]
           <> OLD.entry::jsonb - '{price,adapters}'::text[] THEN
        RAISE EXCEPTION '%@% is registered: a version never changes', OLD.name, OLD.version;
    END IF;
    IF NEW.state <> OLD.state THEN
        NEW.retired_at := CASE WHEN NEW.state = 'retired' THEN now() END;
    END IF;
    RETURN NEW;
END $$;
"""

_RIGHTS = """
GRANT UPDATE (base, state, pushed_at) ON artifacts TO millrace_api;
GRANT UPDATE (state) ON artifacts TO millrace_worker; -- keepers remove contents
"""

_TRIGGER_BEFORE = """
CREATE OR REPLACE FUNCTION refuse_changed_version() RETURNS trigger
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
"""

_DOWN = """
REVOKE UPDATE (base, state, pushed_at) ON artifacts FROM millrace_api;
REVOKE UPDATE (state) ON artifacts FROM millrace_worker;
ALTER TABLE model_versions DROP COLUMN retired_at;
ALTER TABLE artifacts DROP COLUMN base, DROP COLUMN state, DROP COLUMN pushed_at;
UPDATE worker_models SET state = 'loading' WHERE state IN ('verifying', 'staging');
ALTER TABLE worker_models
    DROP CONSTRAINT worker_models_state_check,
    ADD CONSTRAINT worker_models_state_check CHECK (state IN
        ('absent', 'loading', 'warming', 'ready', 'draining', 'failed'));
"""


def upgrade() -> None:
    op.execute(_STATES)
    op.execute(_TRIGGER)
    op.execute(_RIGHTS)


def downgrade() -> None:
    op.execute(_TRIGGER_BEFORE)
    op.execute(_DOWN)
