"""Workers whose device failed, and those that are quarantined for it."""

from alembic import op

revision = "0010"
down_revision = "0009"

_UP = """
ALTER TABLE workers
    ADD COLUMN device_error text, -- error of its device, where it ended by that
    DROP CONSTRAINT workers_died_check,
    DROP CONSTRAINT workers_state_check,
    ADD CONSTRAINT workers_died_check CHECK (died IN ('killed', 'crashed', 'hung', 'sick')),
    ADD CONSTRAINT workers_state_check CHECK (state IN
        ('loading', 'ready', 'draining', 'stopped', 'lost', 'quarantined'));
"""

_DOWN = """
UPDATE workers SET state = 'lost' WHERE state = 'quarantined';
UPDATE workers SET died = 'killed' WHERE died = 'sick';
ALTER TABLE workers
    DROP COLUMN device_error,
    DROP CONSTRAINT workers_died_check,
    DROP CONSTRAINT workers_state_check,
    ADD CONSTRAINT workers_died_check CHECK (died IN ('killed', 'crashed', 'hung')),
    ADD CONSTRAINT workers_state_check CHECK (state IN
        ('loading', 'ready', 'draining', 'stopped', 'lost'));
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
