"""Jobs whose slices go by routes; versions that aliases meant before, which are kept warm."""

from alembic import op

revision = "0021"
down_revision = "0020"

# Jobs of releases before this one are pinned, and their aliases keep nothing warm.
_UP = """
ALTER TABLE jobs ADD COLUMN versioning text NOT NULL DEFAULT 'pinned'
    CHECK (versioning IN ('pinned', 'routed'));
CREATE INDEX jobs_routed ON jobs (model, tenant_id, version)
    WHERE versioning = 'routed' AND finished_at IS NULL;
ALTER TABLE model_aliases ADD COLUMN previous text, -- version before
    ADD COLUMN warm_until timestamptz; -- until then workers keep that one in memory
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute("ALTER TABLE jobs DROP COLUMN versioning")
    op.execute("ALTER TABLE model_aliases DROP COLUMN previous, DROP COLUMN warm_until")
