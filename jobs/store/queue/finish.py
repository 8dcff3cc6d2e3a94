"""Ends of slices and jobs. A job has ended exactly when every seq has a result."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import delete, text

from jobs.states import JobState, Outcome
from jobs.store.db import TRANSFERS_CHANNEL, Tx
from jobs.store.queue import checkpoints
from jobs.store.tables import transfers
from jobs.store.webhooks.deliveries import DELIVER
from jobs.telemetry.metrics import record

SliceKey = tuple[UUID, int]
"""Job and start of a slice."""

# Statements of this file are written out, but for the rare ones: they are part of a settlement,
# take arrays of slices, and recount results by LATERAL.

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
                 ELSE octet_length(r.output) END), 0)
            + coalesce(sum(octet_length(r.vector)), 0) + coalesce(sum(octet_length(r.error)), 0)"""
"""SQL: size of the outputs and errors of results `r`."""

COUNTS = f"""LATERAL (
        SELECT count(*) AS total,
               count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
               count(*) FILTER (WHERE outcome = 'failed') AS failed,
               count(*) FILTER (WHERE outcome = 'cancelled') AS cancelled,
               count(*) FILTER (WHERE outcome = 'expired') AS expired,
               count(truncated) AS truncated,
               {OUTPUT_BYTES} AS output_bytes
        FROM results r WHERE r.job_id = s.job_id AND r.seq >= s.start AND r.seq < s.stop
    ) AS c"""
"""SQL: counts of the results of slice `s`."""

SET_COUNTS = """n_succeeded = c.succeeded, n_failed = c.failed, n_cancelled = c.cancelled,
        n_expired = c.expired, n_truncated = c.truncated, output_bytes = c.output_bytes"""
"""SQL: sets the columns that hold these counts."""

# The epoch fences off the slice's owner; the counters are recounted from the results.
_END = text(f"""
    UPDATE slices
    SET state = 'done', epoch = slices.epoch + 1, lease_owner = NULL, lease_until = NULL,
        finished_at = now(), {SET_COUNTS}
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


def end_slices(tx: Tx, keys: Sequence[SliceKey], outcome: Outcome) -> None:
    """Ends slices that the caller has locked: seqs without a result get this outcome.

    Ends at most MOST_ITEMS; the rest is taken from its owners and held, for the next transaction.
    """
    if not keys:
        return
    found = tx.execute(_FITTING, key_arrays(keys) | {"most": MOST_ITEMS})
    fitting = [(row[0], row[1]) for row in found]
    for model, count in tx.execute(_FILL, key_arrays(fitting) | {"outcome": outcome}):
        record.items_ended(model, outcome, count)
    tx.execute(_END, key_arrays(fitting))
    checkpoints.delete_ended(tx, fitting)
    if len(fitting) < len(keys):
        tx.execute(_HOLD, key_arrays(set(keys).difference(fitting)))


def key_arrays(keys: Collection[SliceKey]) -> dict[str, list[Any]]:
    """Returns slices as the parameters jobs, starts."""
    return {"jobs": [job for job, _ in keys], "starts": [start for _, start in keys]}


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
        {SET_COUNTS} + jobs.archived_bytes
    FROM (SELECT job_id, bool_and(state = 'done') AS done,
                 sum(n_succeeded) AS succeeded, sum(n_failed) AS failed,
                 sum(n_cancelled) AS cancelled, sum(n_expired) AS expired,
                 sum(n_truncated) AS truncated,
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


def close_finished_jobs(tx: Tx, ids: Collection[UUID]) -> None:
    """Ends those of these jobs that have all their results, and freezes their counts.

    Writes their webhooks; a job with a target is exported first. A job with expired items is
    expired, whoever writes the last result.
    """
    if not ids:
        return
    maybe = tx.scalars(_MAYBE_FINISHED, {"jobs": list(ids)}).all()
    if maybe:
        tx.execute(_CLOSE, {"jobs": list(maybe)})


# Written out, as DELIVER is.
_CLOSE_UNREAD = text(f"""
    WITH closed AS (
    UPDATE jobs SET state = :state, finished_at = now(), error = :error,
        cancelling_at = CASE WHEN CAST(:state AS text) = 'cancelled' THEN now() END
    WHERE id = :job AND state = 'validating'
    RETURNING *)
    {DELIVER}
""")


def close_unread(tx: Tx, job: UUID, state: JobState, error: str | None = None) -> None:
    """Ends a locked job whose items were never read. error: JSON."""
    its = transfers.c.job_id == job, transfers.c.kind == "import"
    tx.execute(delete(transfers).where(*its))
    tx.execute(_CLOSE_UNREAD, {"job": job, "state": state, "error": error})


# One look at the index of open slices for each job (OFFSET 0), however many slices are open.
_MISSED = text("""
    WITH looked_at AS (
        (SELECT id, state, expires_at FROM jobs
         WHERE finished_at IS NULL AND expires_at > :expires_at
         ORDER BY expires_at FETCH FIRST :most ROWS WITH TIES)
        UNION ALL
        (SELECT id, state, NULL FROM jobs
         WHERE finished_at IS NULL AND expires_at IS NULL AND id > :id ORDER BY id LIMIT :most)
    )
    SELECT max(expires_at), count(expires_at) >= :most,
           (array_agg(id ORDER BY id DESC) FILTER (WHERE expires_at IS NULL))[1],
           count(*) - count(expires_at) >= :most,
           array_agg(id) FILTER (
               WHERE state <> 'validating'
                 AND NOT EXISTS (SELECT FROM slices s
                                 WHERE s.job_id = looked_at.id AND s.state <> 'done' OFFSET 0))
    FROM looked_at
""")
_SOME_JOBS = 20_000
_FIRST = {"expires_at": "-infinity", "id": UUID(int=0)}


class MissedJobs:
    """Search for jobs that are finished and still open: some of the open jobs at each look, in the
    order of their expiry, so that a look costs the same however many are queued."""

    def __init__(self, most: int = _SOME_JOBS) -> None:
        self._most, self._after = most, _FIRST

    def close(self, tx: Tx) -> int:
        """Looks at some more open jobs, and ends those that are finished; returns their number."""
        row = tx.execute(_MISSED, self._after | {"most": self._most}).one()
        expires_at, more, id, more_without, missed = row
        self._after = {
            "expires_at": expires_at if more else _FIRST["expires_at"],
            "id": id if more_without else _FIRST["id"],
        }
        close_finished_jobs(tx, missed or ())
        return len(missed or ())
