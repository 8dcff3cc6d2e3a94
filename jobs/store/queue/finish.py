"""Ends of slices and jobs. A job has ended exactly when every seq has a result."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text

from jobs.states import JobState, Outcome
from jobs.store.db import TRANSFERS_CHANNEL, Tx
from jobs.store.webhooks.deliveries import DELIVER
from jobs.telemetry.metrics import record

# Seqs without a result get one; those that have one keep it (ON CONFLICT).
_FILL = text("""
    WITH filled AS (
        INSERT INTO results (job_id, tenant_id, seq, outcome, attempts, units)
        SELECT s.job_id, s.tenant_id, g.seq, CAST(:outcome AS outcome), 0, 0
        FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS ended (job_id, start)
        JOIN slices s USING (job_id, start),
        LATERAL generate_series(s.start, s.stop - 1) AS g (seq)
        ON CONFLICT DO NOTHING
        RETURNING job_id
    )
    SELECT model || '@' || version, count(*)
    FROM filled JOIN jobs ON jobs.id = filled.job_id GROUP BY model, version
""")

# The length of a text that is stored out of line is known without reading it. A reference to a blob
# is short, begins with "@", and ends with the blob's length.
OUTPUT_BYTES = """coalesce(sum(
            CASE WHEN octet_length(r.output) < 300 AND starts_with(r.output, '@')
                 THEN split_part(r.output, ' ', 3)::bigint
                 ELSE octet_length(r.output) END), 0)"""
"""SQL: size of the outputs of results `r`."""

COUNTS = f"""LATERAL (
        SELECT count(*) AS total,
               count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
               count(*) FILTER (WHERE outcome = 'failed') AS failed,
               count(*) FILTER (WHERE outcome = 'cancelled') AS cancelled,
               count(*) FILTER (WHERE outcome = 'expired') AS expired,
               {OUTPUT_BYTES} AS output_bytes
        FROM results r WHERE r.job_id = s.job_id AND r.seq >= s.start AND r.seq < s.stop
    ) AS c"""
"""SQL: counts of the results of slice `s`."""

# The epoch fences off the slice's owner; the counters are recounted from the results.
_END = text(f"""
    UPDATE slices
    SET state = 'done', epoch = slices.epoch + 1, lease_owner = NULL, lease_until = NULL,
        finished_at = now(),
        n_succeeded = c.succeeded, n_failed = c.failed,
        n_cancelled = c.cancelled, n_expired = c.expired, output_bytes = c.output_bytes
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS ended (job_id, start)
    JOIN slices s USING (job_id, start),
    {COUNTS}
    WHERE slices.job_id = ended.job_id AND slices.start = ended.start
""")


MOST_ITEMS = 20_000
"""Most items that one transaction ends, about 0.2 s; one slice is the least."""

# The first slices that together have at most so many items: a running sum in their order.
_FITTING = text("""
    SELECT job_id, start FROM (
        SELECT s.job_id, s.start, sum(s.stop - s.start) OVER in_order AS filled,
               row_number() OVER in_order AS place
        FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS asked (job_id, start)
        JOIN slices s USING (job_id, start)
        WINDOW in_order AS (ORDER BY s.job_id, s.start)
    ) AS summed
    WHERE filled <= :most OR place = 1
""")
_HOLD = text("""
    UPDATE slices
    SET state = 'held', epoch = epoch + 1, lease_owner = NULL, lease_until = NULL
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS rest (job_id, start)
    WHERE slices.job_id = rest.job_id AND slices.start = rest.start AND state <> 'held'
""")


def end_slices(tx: Tx, slices: Sequence[tuple[UUID, int]], outcome: Outcome) -> None:
    """Ends slices that the caller has locked: seqs without a result get this outcome.

    Ends at most MOST_ITEMS; the rest is taken from its owners and held, for the next transaction.
    """
    if not slices:
        return
    fitting = [
        (row[0], row[1]) for row in tx.execute(_FITTING, _arrays(slices) | {"most": MOST_ITEMS})
    ]
    for model, count in tx.execute(_FILL, _arrays(fitting) | {"outcome": outcome}):
        record.items_ended(model, outcome, count)
    tx.execute(_END, _arrays(fitting))
    if len(fitting) < len(slices):
        tx.execute(_HOLD, _arrays(set(slices).difference(fitting)))


def _arrays(slices: Collection[tuple[UUID, int]]) -> dict[str, list[Any]]:
    return {"jobs": [job for job, _ in slices], "starts": [start for _, start in slices]}


# Only a transaction that sees no claimable slice left may have finished the last one. Two that
# finish the last two slices at once each see the other's as leased: so each takes the lock on the
# job first, and counts after it, in a new statement that sees what the other committed.
_MAYBE_FINISHED = text("""
    SELECT id FROM jobs
    WHERE id = ANY(:jobs) AND finished_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM slices s
                      WHERE s.job_id = jobs.id AND s.state IN ('ready', 'held'))
    ORDER BY id FOR UPDATE
""")

# Ends jobs, freezes their counts, and starts their exports or writes their webhooks, in one
# statement.
_CLOSE = text(f"""
    WITH closed AS (
    UPDATE jobs
    SET state = CASE WHEN jobs.state = 'cancelling' THEN 'cancelled'
                     WHEN c.expired > 0 THEN 'expired' ELSE 'completed' END,
        finished_at = now(), started_at = coalesce(started_at, now()),
        n_succeeded = c.succeeded, n_failed = c.failed,
        n_cancelled = c.cancelled, n_expired = c.expired, output_bytes = c.output_bytes
    FROM (SELECT job_id, bool_and(state = 'done') AS done,
                 sum(n_succeeded) AS succeeded, sum(n_failed) AS failed,
                 sum(n_cancelled) AS cancelled, sum(n_expired) AS expired,
                 sum(output_bytes) AS output_bytes
          FROM slices WHERE job_id = ANY(:jobs) GROUP BY job_id) AS c
    WHERE jobs.id = c.job_id AND c.done
    RETURNING jobs.*
    ), exported AS (
    INSERT INTO transfers (job_id, tenant_id, kind, generation)
    SELECT id, tenant_id, 'export', generation FROM closed WHERE target IS NOT NULL
    RETURNING pg_notify('{TRANSFERS_CHANNEL}', ''))
    {DELIVER} AND target IS NULL
""")


def close_finished_jobs(tx: Tx, jobs: Collection[UUID]) -> None:
    """Ends those of `jobs` that have all their results, and freezes their counts.

    Writes their webhooks; a job with a target is exported first. A job with expired items is
    expired, whoever writes the last result.
    """
    if not jobs:
        return
    maybe = tx.scalars(_MAYBE_FINISHED, {"jobs": list(jobs)}).all()
    if maybe:
        tx.execute(_CLOSE, {"jobs": list(maybe)})


_NO_IMPORT = text("DELETE FROM transfers WHERE job_id = :job AND kind = 'import'")
_CLOSE_UNREAD = text(f"""
    WITH closed AS (
    UPDATE jobs SET state = :state, finished_at = now(), error = :error
    WHERE id = :job AND state = 'validating'
    RETURNING *)
    {DELIVER}
""")


def close_unread(tx: Tx, job: UUID, state: JobState, error: str | None = None) -> None:
    """Ends a locked job whose items were never read. error: JSON."""
    tx.execute(_NO_IMPORT, {"job": job})
    tx.execute(_CLOSE_UNREAD, {"job": job, "state": state, "error": error})


_MISSED = text("""
    SELECT id FROM jobs
    WHERE finished_at IS NULL AND state <> 'validating'
      AND NOT EXISTS (SELECT 1 FROM slices s WHERE s.job_id = jobs.id AND s.state <> 'done')
    LIMIT 1000
""")


def close_missed(tx: Tx) -> int:
    """Ends jobs that are finished and still open; returns their number."""
    found = tx.scalars(_MISSED).all()
    close_finished_jobs(tx, found)
    return len(found)
