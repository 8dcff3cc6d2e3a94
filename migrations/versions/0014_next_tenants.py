"""Lists of the tenants that are served next, where a model has too many to look at each."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE next_tenants (
            pool      text NOT NULL,
            model     text NOT NULL,
            version   text NOT NULL,
            tenants   text[] NOT NULL, -- by the virtual time at which each starts
            until_ms  float8 NOT NULL, -- virtual time at which the first of the others starts
            listed_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (pool, model, version)
        )
    """)
    op.execute("GRANT SELECT, INSERT, DELETE ON next_tenants TO millrace_worker")


def downgrade() -> None:
    op.execute("DROP TABLE next_tenants")
