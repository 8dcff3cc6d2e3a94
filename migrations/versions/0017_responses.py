"""Responses of OpenAI's Responses API that are stored."""

from alembic import op

revision = "0017"
down_revision = "0016"

_UP = """
CREATE TABLE responses (
    id          uuid PRIMARY KEY, -- of a response in the background also that of its job
    tenant_id   text NOT NULL,
    previous_id uuid, -- the response whose conversation it goes on with
    background  boolean NOT NULL,
    request     text NOT NULL, -- JSON: what the response repeats of its request
    input       text NOT NULL, -- JSON: an array of the items of its request
    ended       text, -- JSON: status, output and usage; null: in the background
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL
);
CREATE INDEX responses_tenant ON responses (tenant_id, id DESC);
CREATE INDEX responses_expiry ON responses (expires_at);
GRANT SELECT, INSERT, DELETE ON responses TO millrace_api;
GRANT SELECT, UPDATE, DELETE ON responses TO millrace_worker; -- UPDATE: to lock rows
"""

# As in 0004.
_POLICIES = """
ALTER TABLE responses ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON responses TO millrace_api
    USING (tenant_id = current_setting('millrace.tenant', true)
           OR current_setting('millrace.tenant', true) = '*');
CREATE POLICY everybodys ON responses TO millrace_worker USING (true);
"""


def upgrade() -> None:
    op.execute(_UP)
    op.execute(_POLICIES)


def downgrade() -> None:
    op.execute("DROP TABLE responses")
