"""The hash chain of the audit log.

A trigger links each entry as its transaction commits, whichever release wrote it. Nothing locks a
row after that, so a writer that waits for the chain's lock holds up no other, and none deadlocks.
"""

from alembic import op

revision = "0011"
down_revision = "0010"

_CREATE = """
CREATE TABLE audit_chain (
    n     bigint PRIMARY KEY,      -- 1, 2, 3, … without a gap, in the order of commits
    entry bigint NOT NULL UNIQUE,  -- id in audit; stays where that entry is deleted
    hash  bytea NOT NULL           -- audit_hash of the hash before it and of the entry
);

-- SHA-256 of the hash before (of the first entry: nothing), and of each value of the entry as
-- UTF-8 after its length in bytes and a colon: `millrace audit --verify` computes the same.
CREATE FUNCTION audit_hash(previous bytea, entry audit) RETURNS bytea
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT sha256(previous || string_agg(
        convert_to(octet_length(convert_to(value, 'UTF8')) || ':' || value, 'UTF8'), '' ORDER BY i))
    FROM unnest(ARRAY[entry.id::text, extract(epoch FROM entry.at)::text, entry.tenant_id,
                      entry.actor, entry.act, entry.target, entry.detail, entry.request_id])
         WITH ORDINALITY AS entries (value, i)
$$;

CREATE FUNCTION link_audit_entry() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE head audit_chain;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('audit_chain', 0));
    SELECT * INTO head FROM audit_chain ORDER BY n DESC LIMIT 1;
    INSERT INTO audit_chain VALUES (
        coalesce(head.n, 0) + 1, NEW.id, audit_hash(coalesce(head.hash, ''), NEW));
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION audit_hash, link_audit_entry FROM PUBLIC;
"""

_LINK_THOSE_WITHOUT = """
DO $$
DECLARE found audit; head audit_chain;
BEGIN
    SELECT * INTO head FROM audit_chain ORDER BY n DESC LIMIT 1;
    head.n := coalesce(head.n, 0);
    head.hash := coalesce(head.hash, '');
    FOR found IN SELECT * FROM audit a
                 WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.entry = a.id) ORDER BY id LOOP
        head.hash := audit_hash(head.hash, found);
        head.n := head.n + 1;
        INSERT INTO audit_chain VALUES (head.n, found.id, head.hash);
    END LOOP;
END $$;
"""

# Its lock keeps others from adding entries until the migration's commit.
_TRIGGER = """
CREATE CONSTRAINT TRIGGER audit_chain AFTER INSERT ON audit
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION link_audit_entry();
"""

_DOWN = """
DROP TRIGGER audit_chain ON audit;
DROP FUNCTION link_audit_entry, audit_hash;
DROP TABLE audit_chain;
"""


def upgrade() -> None:
    # Entries are hashed while others may be added: under the lock only those that were.
    for step in (_CREATE, _LINK_THOSE_WITHOUT, _TRIGGER, _LINK_THOSE_WITHOUT):
        op.execute(step)


def downgrade() -> None:
    op.execute(_DOWN)
