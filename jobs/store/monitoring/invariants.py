"""Invariants of the design, as queries for their violations in a live database.

All run in one snapshot (`snapshot`), so that a job that moves on meanwhile breaks nothing. Each is
linear in the rows that it reads; a snapshot that stays open holds vacuum back for as long.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Engine, text

from jobs.models.model import PREPARATION
from jobs.states import OUTCOMES, TERMINAL
from jobs.store.db import Tx
from jobs.store.queries import VERSION_OF_SLICE

MOST_VIOLATIONS = 20
"""Most violations that a query returns."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """One query for violations of one invariant."""

    number: int  #: number of the invariant in the design
    name: str  #: name of the query
    holds: str  #: statement that is true where the query finds nothing
    sql: str  #: SELECT of (job or null, fault) for every violation


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation."""

    job: UUID | None  #: the job; None: it concerns no single job
    what: str  #: fault in words


_TERMINAL = ", ".join(f"'{state}'" for state in sorted(TERMINAL))
_OF_JOBS = ("slices", "items", "results", "results_archive", "attempts", "checkpoints", "prepared")
_COUNTS = [f"n_{outcome}" for outcome in OUTCOMES]


def _each_table(query: str, tables: tuple[str, ...]) -> str:
    return " UNION ALL ".join(query.format(table=table) for table in tables)


def _counts(alias: str) -> str:
    return ", ".join(f"{alias}.{name}" for name in _COUNTS)


def _differ(left: str, right: str) -> str:
    return " OR ".join(f"{left}.{name} <> {right}.{name}" for name in _COUNTS)


def _is_frozen(table: str) -> str:
    """Query for a table whose trigger against changes is missing."""
    return f"""
    SELECT CAST(NULL AS uuid), 'the trigger {table}_frozen is missing or disabled'
    WHERE NOT EXISTS (SELECT FROM pg_trigger
                      WHERE tgname = '{table}_frozen' AND tgrelid = CAST('{table}' AS regclass)
                        AND tgenabled IN ('O', 'A'))
"""


def _seqs(table: str) -> str:
    """Number of rows a job has in a table, with its first and last seq."""
    return f"""(SELECT job_id, count(*) AS n, min(seq) AS first, max(seq) AS last
               FROM {table} GROUP BY job_id)"""


# The primary key lets a seq have one result at most: the right number of them, from the first to
# the last, is one each.
_RESULTS_COMPLETE = f"""
    SELECT j.id, format('%s results, seq %s to %s, of %s items', coalesce(r.n, 0), r.first, r.last,
                        j.total)
    FROM jobs j
    LEFT JOIN {_seqs("results")} AS r ON r.job_id = j.id
    WHERE r.first < 0 OR r.last >= j.total
       OR (j.state IN ({_TERMINAL}) AND NOT j.results_pruned
           AND coalesce(r.n, 0) <> j.total)
"""

_SLICES_COVER = """
    SELECT job_id, format('a slice starts at %s where %s was due', start, due)
    FROM (SELECT job_id, start,
                 lag(stop, 1, 0) OVER (PARTITION BY job_id ORDER BY start) AS due
          FROM slices) AS s
    WHERE start <> due
    UNION ALL
    SELECT j.id, format('its slices end at %s of %s items', coalesce(s.stop, 0), j.total)
    FROM jobs j
    LEFT JOIN (SELECT job_id, max(stop) AS stop FROM slices GROUP BY job_id) AS s
         ON s.job_id = j.id
    WHERE coalesce(s.stop, 0) <> j.total
"""

# Counted since the server's statistics began: a crash resets them.
_NEVER_UPDATED = """
    SELECT CAST(NULL AS uuid), format('%s rows of %s were updated', n_tup_upd, relid::regclass)
    FROM pg_partition_tree('results') JOIN pg_stat_user_tables USING (relid)
    WHERE n_tup_upd > 0
"""

_ARCHIVE = """
    SELECT a.job_id, format('seq %s: %s of generation %s archived, now is %s', a.seq, a.outcome,
                            a.generation, j.generation)
    FROM results_archive a JOIN jobs j ON j.id = a.job_id
    WHERE a.outcome = 'succeeded' OR a.generation NOT BETWEEN 1 AND j.generation - 1
    UNION ALL
    SELECT job_id, format('seq %s: %s results of generation %s archived', seq, count(*), generation)
    FROM results_archive GROUP BY job_id, seq, generation HAVING count(*) > 1
"""

# A deleted job's rows outlive it until they are erased.
_ORPHANS = _each_table(
    """
    SELECT job_id, format('%s rows in {table}, and no job', count(*))
    FROM {table} AS t
    WHERE NOT EXISTS (SELECT FROM jobs WHERE id = t.job_id)
      AND NOT EXISTS (SELECT FROM deletions d WHERE d.job_id = t.job_id)
    GROUP BY job_id
    """,
    _OF_JOBS,
)

_ITEMS_COMPLETE = f"""
    SELECT j.id, format('%s items, seq %s to %s, of %s', coalesce(i.n, 0), i.first, i.last,
                        j.total)
    FROM jobs j
    LEFT JOIN {_seqs("items")} AS i ON i.job_id = j.id
    WHERE NOT j.items_pruned AND (j.total > 0 OR i.n > 0)
      AND (i.n, i.first, i.last) IS DISTINCT FROM (CAST(j.total AS bigint), 0, j.total - 1)
"""

_LEASES = """
    SELECT job_id, format('slice %s is %s: owner %s, until %s, epoch %s', start, state,
                          coalesce(CAST(lease_owner AS text), 'none'),
                          coalesce(CAST(lease_until AS text), 'never'), epoch)
    FROM slices
    WHERE (state = 'leased') <> (lease_owner IS NOT NULL)
       OR (state = 'leased') <> (lease_until IS NOT NULL)
       OR (state = 'leased' AND epoch < 1)
"""

_CHECKPOINTS = """
    SELECT job_id, format('seq %s has a result and a checkpoint', c.seq)
    FROM checkpoints c WHERE c.position = 0 AND c.choice = 0
      AND EXISTS (SELECT FROM results r WHERE r.job_id = c.job_id AND r.seq = c.seq)
"""

# Readers pass over a slice that is done without a look for gaps in it.
_DONE_IS_WHOLE = f"""
    SELECT job_id, format('slice %s is done with %s of %s results', start,
                          {" + ".join(_COUNTS)}, stop - start)
    FROM slices WHERE state = 'done' AND {" + ".join(_COUNTS)} <> stop - start
"""
_DELIVERED_BY_KEY = """
    SELECT CAST(NULL AS uuid), format('%s has no valid primary key (job_id, seq)', relid)
    FROM pg_partition_tree('results') AS p
    WHERE NOT EXISTS (SELECT FROM pg_index i
                      WHERE i.indrelid = p.relid AND indisprimary AND indisvalid
                        AND pg_get_indexdef(i.indexrelid) LIKE '%(job_id, seq)')
"""

_SLICE_COUNTS = f"""
    SELECT s.job_id, format('slice %s counts (%s), its results are (%s)', s.start,
                            concat_ws(', ', {_counts("s")}), concat_ws(', ', {_counts("c")}))
    FROM slices s JOIN jobs j ON j.id = s.job_id AND NOT j.results_pruned,
    LATERAL (
        SELECT {", ".join(f"count(*) FILTER (WHERE outcome = '{o}') AS n_{o}" for o in OUTCOMES)}
        FROM results r WHERE r.job_id = s.job_id AND r.seq >= s.start AND r.seq < s.stop
    ) AS c
    WHERE {_differ("s", "c")}
"""

# The counts of an open job are the sums over its slices, wherever they are asked for.
_JOB_COUNTS = f"""
    SELECT j.id, format('the job counts (%s), its slices (%s)',
                        concat_ws(', ', {_counts("j")}), concat_ws(', ', {_counts("s")}))
    FROM jobs j
    JOIN (SELECT job_id, {", ".join(f"sum({name}) AS {name}" for name in _COUNTS)}
          FROM slices GROUP BY job_id) AS s ON s.job_id = j.id
    WHERE j.state IN ({_TERMINAL}) AND ({_differ("j", "s")})
"""

_ENDED = f"""
    SELECT id, format('it is %s, and finished at %s', state,
                      coalesce(CAST(finished_at AS text), 'no time'))
    FROM jobs WHERE (state IN ({_TERMINAL})) <> (finished_at IS NOT NULL)
    UNION ALL
    SELECT j.id, format('it is %s, its slice %s is %s', j.state, s.start, s.state)
    FROM slices s JOIN jobs j ON j.id = s.job_id
    WHERE j.state IN ({_TERMINAL}) AND s.state <> 'done'
    UNION ALL
    SELECT id, format('it is completed with %s cancelled and %s expired', n_cancelled, n_expired)
    FROM jobs WHERE state = 'completed' AND n_cancelled + n_expired > 0
"""

_TENANTS = _each_table(
    """
    SELECT t.job_id, format('%s rows in {table} of tenant %s, the job is of %s', count(*),
                            t.tenant_id, j.tenant_id)
    FROM {table} AS t JOIN jobs j ON j.id = t.job_id
    WHERE t.tenant_id <> j.tenant_id
    GROUP BY t.job_id, t.tenant_id, j.tenant_id
    """,
    (*_OF_JOBS, "usage", "webhook_deliveries", "idempotency_keys", "deletions", "transfers"),
)

_TRANSFERS = f"""
    SELECT coalesce(j.id, t.job_id),
           format('it is %s in generation %s and needs %s; there is %s of generation %s', j.state,
                  j.generation, coalesce('an ' || j.needs, 'no transfer'),
                  coalesce('an ' || t.kind, 'no transfer'), t.generation)
    FROM (SELECT id, generation, state,
                 CASE WHEN state = 'validating' THEN 'import'
                      WHEN state IN ({_TERMINAL}) AND total > 0 AND target IS NOT NULL
                           AND manifest IS NULL THEN 'export' END AS needs
          FROM jobs) AS j
    FULL JOIN transfers t
         ON t.job_id = j.id AND t.kind = j.needs AND t.generation = j.generation
    WHERE j.id IS NULL OR (j.needs IS NOT NULL AND t.job_id IS NULL)
"""

# Of an earlier generation only what did not succeed is archived: it took its time on the device.
_LEDGER = """
    SELECT j.id, format('billed are %s items, %s units, %s us, %s tokens; its results are %s, %s, '
                        '%s, %s', b.succeeded, b.units, b.device_us, b.tokens, r.succeeded,
                        r.units, r.device_us, r.tokens)
    FROM (SELECT job_id, sum(succeeded) AS succeeded, sum(units) AS units,
                 sum(device_us) AS device_us,
                 ARRAY[sum(input_tokens), sum(cached_tokens), sum(output_tokens)] AS tokens
          FROM usage WHERE kind = 'items' GROUP BY job_id) AS b
    FULL JOIN (SELECT job_id, count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
                      coalesce(sum(units) FILTER (WHERE outcome = 'succeeded'), 0) AS units,
                      sum(device_us) AS device_us,
                      CAST(ARRAY[coalesce(sum(input_tokens), 0), coalesce(sum(cached_tokens), 0),
                                 coalesce(sum(output_tokens), 0)] AS numeric[]) AS tokens
               FROM (SELECT job_id, outcome, units, device_us, input_tokens, cached_tokens,
                            output_tokens FROM results
                     UNION ALL
                     SELECT job_id, outcome, units, device_us, input_tokens, cached_tokens,
                            output_tokens FROM results_archive) AS every
               GROUP BY job_id) AS r USING (job_id)
    JOIN jobs j ON j.id = job_id AND j.billed AND NOT j.results_pruned
    WHERE (coalesce(b.succeeded, 0), coalesce(b.units, 0), coalesce(b.device_us, 0),
           coalesce(b.tokens, '{0,0,0}'))
          <> (coalesce(r.succeeded, 0), coalesce(r.units, 0), coalesce(r.device_us, 0),
              coalesce(r.tokens, '{0,0,0}'))
"""

# A slice that was split keeps its start: none ever goes.
_LEDGER_NAMES = f"""
    SELECT u.job_id, format('slice %s is billed as %s@%s, %s; the job is of %s@%s, %s', u.start,
                            u.model, u.version, u.class, j.model, j.version, j.class)
    FROM usage u JOIN jobs j ON j.id = u.job_id
    WHERE (u.model, u.class) <> (j.model, j.class)
       OR u.version <> j.version AND j.versioning = 'pinned'
    UNION ALL
    SELECT u.job_id, format('slice %s is billed as of version %s; it is of %s', u.start, u.version,
                            s.version)
    FROM usage u JOIN jobs j ON j.id = u.job_id
    JOIN slices s ON s.job_id = u.job_id AND s.start = u.start
    WHERE j.versioning = 'routed' AND j.generation = 1 AND u.version <> {VERSION_OF_SLICE}
    UNION ALL
    SELECT u.job_id, format('slice %s is billed, and there is none', u.start)
    FROM usage u JOIN jobs j ON j.id = u.job_id
    WHERE NOT EXISTS (SELECT FROM slices s WHERE s.job_id = u.job_id AND s.start = u.start)
"""

# Of a job that is pinned its slices have its version; of one that is not, each has its own. What
# failed in its preparation ended in a launch of that.
_VERSIONS = f"""
    SELECT s.job_id, format('slice %s is of %s@%s; the job is of %s@%s', s.start,
                            s.model, s.version, j.model, j.version)
    FROM slices s JOIN jobs j ON j.id = s.job_id
    WHERE s.model <> j.model OR {VERSION_OF_SLICE} <> j.version AND j.versioning = 'pinned'
    UNION ALL
    SELECT r.job_id, format('item %s ended in a launch of version %s', r.seq, l.version)
    FROM results r JOIN jobs j ON j.id = r.job_id JOIN launches l ON l.id = r.launch_id
    WHERE replace(l.version, '{PREPARATION}', '')
          <> CASE WHEN j.versioning = 'pinned' THEN j.version
                  ELSE (SELECT {VERSION_OF_SLICE} FROM slices s
                        WHERE s.job_id = r.job_id AND s.start <= r.seq
                        ORDER BY s.start DESC LIMIT 1) END
"""

_SPEND = """
    SELECT CAST(NULL AS uuid), format('%s spent %s in %s, the ledger says %s', tenant_id,
                                      coalesce(s.amount, 0), month, coalesce(u.amount, 0))
    FROM (SELECT tenant_id, CAST(date_trunc('month', at, 'UTC') AS date) AS month,
                 sum(amount) AS amount FROM usage GROUP BY 1, 2) AS u
    FULL JOIN (SELECT tenant_id, month, sum(amount) AS amount FROM spend GROUP BY 1, 2) AS s
              USING (tenant_id, month)
    WHERE coalesce(s.amount, 0) <> coalesce(u.amount, 0)
"""

INVARIANTS = tuple(
    Invariant(*row)
    for row in (
        (1, "results_complete",
         "a job that has ended has exactly one result for every seq, and none outside",
         _RESULTS_COMPLETE),
        (1, "slices_cover", "a job's slices cover its items without gap or overlap", _SLICES_COVER),
        (2, "results_frozen", "the database refuses to update a result", _is_frozen("results")),
        (2, "never_updated", "no result has been updated", _NEVER_UPDATED),
        (2, "archive", "only what did not succeed was archived, by an earlier generation",
         _ARCHIVE),
        (3, "no_orphans", "no rows are left of a job that is not there", _ORPHANS),
        (3, "items_complete", "an acknowledged job has all its items", _ITEMS_COMPLETE),
        (4, "leases", "a slice has an owner and an end of lease exactly while it is leased",
         _LEASES),
        (4, "checkpoints", "an item that has a result has no checkpoint", _CHECKPOINTS),
        (5, "done_is_whole", "a slice that is done has all its results", _DONE_IS_WHOLE),
        (5, "delivered_by_key", "results are read by a valid key of their order",
         _DELIVERED_BY_KEY),
        (6, "slice_counts", "the counts of a slice are those of its results", _SLICE_COUNTS),
        (6, "job_counts", "the counts of a job that has ended are those of its slices",
         _JOB_COUNTS),
        (7, "ended", "what has ended is done, and stays as it ended", _ENDED),
        (7, "transfers", "a job is read or written exactly while its state says so", _TRANSFERS),
        (8, "tenants", "all rows of a job are of its tenant", _TENANTS),
        (9, "ledger", "a job is billed for its results, each once", _LEDGER),
        (9, "ledger_names", "what is billed names a slice of its job", _LEDGER_NAMES),
        (9, "ledger_frozen", "the database refuses to change the ledger", _is_frozen("usage")),
        (9, "spend", "a month's spend is what the ledger says", _SPEND),
        (10, "versions", "an item ends in a launch of its slice's version", _VERSIONS),
    )
)  # fmt: skip


@contextmanager
def snapshot(database: Engine) -> Iterator[Tx]:
    """Opens a read-only transaction that sees the database as it is at its first query."""
    with database.connect() as connection:
        yield connection.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )


def violations(tx: Tx, invariant: Invariant, most: int = MOST_VIOLATIONS) -> list[Violation]:
    """Returns the first `most` violations; empty: the invariant holds."""
    query = text(f"SELECT * FROM ({invariant.sql}) AS broken (job, what) LIMIT :most")
    return [Violation(*row) for row in tx.execute(query, {"most": most})]
