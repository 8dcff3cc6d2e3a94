"""Tokens of models that generate: in results, in the ledger, and limits of them."""

from alembic import op

revision = "0015"
down_revision = "0014"

_UP = """
ALTER TABLE usage
    ADD COLUMN input_tokens  bigint NOT NULL DEFAULT 0, -- of all, as device_us
    ADD COLUMN cached_tokens bigint NOT NULL DEFAULT 0, -- of those
    ADD COLUMN output_tokens bigint NOT NULL DEFAULT 0;
-- Null: the model doesn't generate.
ALTER TABLE results
    ADD COLUMN input_tokens int, ADD COLUMN cached_tokens int, ADD COLUMN output_tokens int;
ALTER TABLE results_archive
    ADD COLUMN input_tokens int, ADD COLUMN cached_tokens int, ADD COLUMN output_tokens int;
ALTER TABLE limits ADD COLUMN tokens_per_min float8 CHECK (tokens_per_min > 0);
"""

_DOWN = """
ALTER TABLE limits DROP COLUMN tokens_per_min;
ALTER TABLE results_archive
    DROP COLUMN input_tokens, DROP COLUMN cached_tokens, DROP COLUMN output_tokens;
ALTER TABLE results
    DROP COLUMN input_tokens, DROP COLUMN cached_tokens, DROP COLUMN output_tokens;
ALTER TABLE usage
    DROP COLUMN input_tokens, DROP COLUMN cached_tokens, DROP COLUMN output_tokens;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
