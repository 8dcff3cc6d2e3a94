"""State of each model in each worker."""

from alembic import op

revision = "0003"
down_revision = "0002"

_UP = """
CREATE TABLE worker_models (
    incarnation bigint NOT NULL REFERENCES workers ON DELETE CASCADE,
    model       text NOT NULL, -- name@version
    state       text NOT NULL CHECK (state IN
                    ('absent', 'loading', 'warming', 'ready', 'draining', 'failed')),
    memory_mb   real NOT NULL,
    load_ms     real NOT NULL, -- until it was warm, the latest time; 0: not yet
    error       text NOT NULL, -- why it failed; else empty
    since       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (incarnation, model)
);
"""

_DOWN = """
DROP TABLE worker_models;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
