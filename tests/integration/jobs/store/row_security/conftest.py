"""A tenant that has everything."""

from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from jobs.intake.idempotency_key import Claim
from jobs.models.builtin_models import SAMPLES
from jobs.store.jobs import verbs
from jobs.store.tenants import audit
from jobs.store.webhooks import endpoints, secrets
from jobs.usecases.submit import Order, submit
from tests.integration.jobs.store.row_security.tenants import ALICE, MARK, TENANTS_TABLES, rows_of
from tests.support.stores.store import claim, settle


@pytest.fixture
def alices(database: Engine) -> UUID:
    """A job of hers that has ended, with everything that a tenant can have."""
    order = Order(
        "echo", labels={"who": MARK}, metadata={"who": MARK}, webhook_url=f"https://{MARK}.example/"
    )
    lines = [{"custom_id": f"{MARK}-{n}", "input": MARK} for n in range(20)]
    held = Claim(ALICE, "key", b"alice")
    id: UUID = submit(database, SAMPLES, ALICE, order, array=lines, claim=held).id
    settle(database, claim(database))
    other = submit(database, SAMPLES, ALICE, order, array=lines).id
    with database.begin() as tx:
        verbs.cancel(tx, other)
        verbs.retry(tx, other)
        verbs.cancel(tx, other)
        secrets.insert_secret(tx, ALICE, MARK.encode(), shown=False)
        endpoint = (ALICE, f"https://{MARK}.example/")
        endpoints.record_failure(tx, endpoint, gone=False, threshold=9, first_s=1, most_s=1)
        audit.record(tx, tenant=ALICE, actor=MARK, act="x", target=MARK, request_id="req_1")
        for statement in _MORE:
            tx.execute(text(statement), {"alice": ALICE, "mark": MARK, "job": id})
    with database.connect() as tx:
        for table in tx.scalars(text(TENANTS_TABLES)).all():
            assert rows_of(tx, table, ALICE), f"the test has nothing in {table}"
    return id


_MORE = (
    "INSERT INTO attempts VALUES (:job, :alice, 0, 1, :mark, 1, now(), now())",
    "INSERT INTO checkpoints VALUES (:job, 0, 0, 0, :alice, '{1}', :mark)",
    "INSERT INTO prepared VALUES (:job, 0, :alice, '1', :mark)",
    "INSERT INTO deletions VALUES ('00000000-0000-0000-0000-000000000000', :alice, 1)",
    "INSERT INTO tenants (tenant_id) VALUES (:alice) ON CONFLICT DO NOTHING",
    """INSERT INTO api_keys (id, tenant_id, name, hint, hash, role, scopes)
       SELECT '00000000-0000-0000-0000-000000000007', :alice, :mark, :mark, '\\x00', 'tenant', '{}'
    """,
    "INSERT INTO limits (tenant_id, model, job_items) VALUES (:alice, :mark, 5)",
    "INSERT INTO turns VALUES (:mark, :alice, 1)",
    "INSERT INTO spend VALUES (:alice, date_trunc('month', now(), 'UTC'), 5)",
    "INSERT INTO spend_told VALUES (:alice, date_trunc('month', now(), 'UTC'), 80)",
    "UPDATE tenants SET soft_cap = 1, hard_cap = 1, webhook_url = :mark WHERE tenant_id = :alice",
    """INSERT INTO webhook_deliveries (tenant_id, url, type, about)
       VALUES (:alice, :mark, 'usage.threshold', '{}')""",
    """INSERT INTO files (id, tenant_id, purpose, filename, bytes, sha256, key)
       VALUES ('00000000-0000-0000-0000-00000000000f', :alice, 'batch', :mark, 1, '\\x00',
               :mark)""",
    """INSERT INTO responses (id, tenant_id, background, request, input, ended, expires_at)
       VALUES ('00000000-0000-0000-0000-000000000011', :alice, false, '{}', :mark, '{}',
               now() + interval '1 day')""",
    """INSERT INTO conversations (id, tenant_id, metadata, expires_at)
       VALUES ('00000000-0000-0000-0000-000000000012', :alice, :mark, now() + interval '1 day')""",
    """INSERT INTO conversation_items
       VALUES ('00000000-0000-0000-0000-000000000012', 0, :alice, :mark, :mark)""",
    """INSERT INTO conversation_turns VALUES ('00000000-0000-0000-0000-000000000012',
       '00000000-0000-0000-0000-000000000011', :alice)""",
    "INSERT INTO transfers VALUES (:job, :alice, 'export', 1)",
    """INSERT INTO model_routes (name, tenant_id, splits, salt, updated_by)
       VALUES (:mark, :alice, '[]', '', '')""",
    """UPDATE jobs SET dialect = 'openai', asked = '{"request": "' || :mark || '"}'
       WHERE id = :job""",
)
