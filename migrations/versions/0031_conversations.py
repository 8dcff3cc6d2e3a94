"""Conversations of OpenAI's Conversations API, and their items."""

from alembic import op

revision = "0031"
down_revision = "0030"
oldest_code = "0028"

_UP = """
CREATE TABLE conversations (
    id         uuid PRIMARY KEY,
    tenant_id  text NOT NULL,
    metadata   text NOT NULL, -- JSON
    bytes      bigint NOT NULL DEFAULT 0, -- of its items
    next_place bigint NOT NULL DEFAULT 0, -- of the item that comes next
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX conversations_tenant ON conversations (tenant_id, id DESC);
CREATE INDEX conversations_expiry ON conversations (expires_at);
CREATE TABLE conversation_items (
    conversation_id uuid NOT NULL REFERENCES conversations ON DELETE CASCADE,
    place           bigint NOT NULL,
    tenant_id       text NOT NULL,
    item_id         text NOT NULL,
    item            text NOT NULL, -- JSON
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (conversation_id, place)
);
CREATE UNIQUE INDEX conversation_items_id ON conversation_items (conversation_id, item_id);
-- Responses in the background whose items are to be appended once they have ended.
CREATE TABLE conversation_turns (
    conversation_id uuid NOT NULL REFERENCES conversations ON DELETE CASCADE,
    response_id     uuid NOT NULL,
    tenant_id       text NOT NULL,
    PRIMARY KEY (conversation_id, response_id)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON conversations TO millrace_api;
GRANT SELECT, INSERT, DELETE ON conversation_items, conversation_turns TO millrace_api;
-- UPDATE: to lock rows
GRANT SELECT, UPDATE, DELETE ON conversations TO millrace_worker;
"""

# As in 0004.
_POLICIES = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON {table} TO millrace_api
    USING (tenant_id = current_setting('millrace.tenant', true)
           OR current_setting('millrace.tenant', true) = '*');
CREATE POLICY everybodys ON {table} TO millrace_worker USING (true);
"""
_TABLES = "conversations", "conversation_items", "conversation_turns"


def upgrade() -> None:
    op.execute(_UP)
    for table in _TABLES:
        op.execute(_POLICIES.format(table=table))


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.execute(f"DROP TABLE {table}")
