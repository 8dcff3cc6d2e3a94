"""Pools: policies of the autoscaler, its events, and the work that calls brought."""

from alembic import op

revision = "0022"
down_revision = "0021"

_TABLES = """
CREATE TABLE pool_policies (
    pool       text PRIMARY KEY,
    policy     text NOT NULL, -- JSON: bounds, headroom, times, schedules, rules, actuator
    paused     boolean NOT NULL DEFAULT false, -- by a person: the number stays as it is
    desired    int CHECK (desired >= 0), -- replicas; NULL: nothing was decided yet
    reason     text NOT NULL DEFAULT '', -- of that number
    state      text NOT NULL DEFAULT '{}', -- JSON: timers of the controller, for any keeper
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL -- as actor of the audit log
);

CREATE TABLE scale_events (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool    text NOT NULL,
    at      timestamptz NOT NULL DEFAULT now(),
    act     text NOT NULL, -- up, down, overdue, failed; set, pause, resume, off by people
    desired int, -- replicas after it
    reason  text NOT NULL DEFAULT '',
    actor   text NOT NULL,
    figures text NOT NULL DEFAULT '{}' -- JSON: the load that it was decided on
);
CREATE INDEX scale_events_pool ON scale_events (pool, id DESC);

CREATE TABLE pool_arrivals (
    pool    text NOT NULL,
    bin     bigint NOT NULL, -- Unix time over 300 s
    work    double precision NOT NULL, -- of calls, in replicas: sum over the samples
    samples int NOT NULL DEFAULT 1,
    PRIMARY KEY (pool, bin)
);
"""

_RIGHTS = """
GRANT SELECT ON pool_policies, scale_events, pool_arrivals TO millrace_api, millrace_worker;
GRANT INSERT, UPDATE, DELETE ON pool_policies TO millrace_api;
GRANT INSERT ON scale_events TO millrace_api, millrace_worker;
GRANT DELETE ON scale_events TO millrace_worker;
GRANT UPDATE (desired, reason, state) ON pool_policies TO millrace_worker;
GRANT INSERT, UPDATE, DELETE ON pool_arrivals TO millrace_worker;
"""


def upgrade() -> None:
    op.execute(_TABLES)
    op.execute(_RIGHTS)


def downgrade() -> None:
    op.execute("DROP TABLE pool_arrivals, scale_events, pool_policies")
