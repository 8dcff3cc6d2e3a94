"""Queue that has grown long: open jobs of one item each, as the platform would have stored them.

SQL writes the rows: a million submissions by HTTP would take longer than all that is measured.
"""

from sqlalchemy import Engine, text

from jobs import clock
from jobs.store import partitions
from jobs.store.db import disable_statement_timeout, notify_work

# Ids are UUIDs of version 7, a tenth of a millisecond apart and all in the past minutes: older
# than the jobs that come after.
_JOBS = text("""
    CREATE TEMPORARY TABLE made ON COMMIT DROP AS
    SELECT n, CAST(lpad(to_hex(CAST(extract(epoch FROM now()) * 1000 AS bigint)
                               - (:jobs - n) / 10), 12, '0')
                   || '7' || substr(hash, 1, 3) || '8' || substr(hash, 4, 15) AS uuid) AS id,
           :prefix || lpad(CAST(n % :tenants AS text), 6, '0') AS tenant
    FROM (SELECT n, md5(:prefix || n) AS hash
          FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS g (n)) AS h
""")
_STATEMENTS = [text(statement) for statement in (
    """INSERT INTO tenants (tenant_id) SELECT DISTINCT tenant FROM made ON CONFLICT DO NOTHING""",
    """INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                         custom_ids, total, expires_at, input_bytes)
       SELECT id, tenant, :model, :version, 'standard', 0, 'queued', '{}', '{}', false, 1,
              now() + interval '1 day', 20 FROM made""",
    """INSERT INTO items (job_id, tenant_id, seq, input)
       SELECT id, tenant, 0, '"item ' || n || '"' FROM made""",
    """INSERT INTO slices (job_id, tenant_id, start, stop, model, version, priority, due_at)
       SELECT id, tenant, 0, 1, :model, :version, 0,
              now() + make_interval(secs => (n - :jobs) / 1000.0 + 30) FROM made""",
)]  # fmt: skip
_AT_ONCE = 100_000


def fill(
    database: Engine, model: str, jobs: int, tenants: int = 1, *, prefix: str = "tenant-"
) -> None:
    """Queues so many jobs of `model` (name@version), spread evenly over tenants."""
    name, _, version = model.partition("@")
    with database.begin() as tx:
        partitions.ensure(tx, clock.now())
    for first in range(0, jobs, _AT_ONCE):
        values = {
            "first": first,
            "last": min(first + _AT_ONCE, jobs) - 1,
            "jobs": jobs,
            "tenants": tenants,
            "prefix": prefix,
        }
        with database.begin() as tx:
            disable_statement_timeout(tx)
            tx.execute(_JOBS, values)
            for statement in _STATEMENTS:
                tx.execute(statement, {"model": name, "version": version, "jobs": jobs})
            notify_work(tx)
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM (ANALYZE) jobs, items, slices, tenants"))
