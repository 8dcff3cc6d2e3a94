"""Figures of models, workers and pools over time."""

from alembic import op

revision = "0026"
down_revision = "0025"

# Nothing in it is a tenant's. The second index is for the deletion of old rows: its entries of one
# minute are alike, so it takes six bytes a row.
_UP = """
CREATE TABLE figures (
    subject   text NOT NULL, -- everything, model:name@version, worker:12, pool:name
    step      int NOT NULL, -- s: 60 or 600
    at        timestamptz NOT NULL, -- beginning of the time that the row is about
    calls_s   real,
    items_s   real,
    tokens_s  real,
    refused_s real,
    failed_s  real,
    waiting   real,
    busy      real,
    p50_s     real,
    p95_s     real,
    PRIMARY KEY (subject, step, at)
);
CREATE INDEX figures_age ON figures (step, at);
GRANT SELECT ON figures TO millrace_api, millrace_worker;
GRANT INSERT, DELETE ON figures TO millrace_worker;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute("DROP TABLE figures")
