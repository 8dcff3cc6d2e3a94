"""What there is to see inside one job: its slices, how its items ended, the items themselves, its
launches.

A job may have millions of items. Its slices know how many of them ended how: what looks for the
failed ones looks only where there are some, by the primary key.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs.states import Outcome
from jobs.store.db import Tx

MOST_COUNTED = 10_000
"""Of failed items, and of launches: what is told of them is told of so many, the first ones."""

_SLICES = text("""
    SELECT s.*, w.name AS worker_name, now() AS read_at
    FROM (SELECT * FROM slices
          WHERE job_id = :job AND tenant_id = :tenant AND start > :after
          ORDER BY start LIMIT :limit) AS s
    LEFT JOIN workers w ON w.incarnation = s.worker
    ORDER BY s.start
""")


def slices(tx: Tx, tenant: str, job: UUID, *, after: int = -1, limit: int) -> Sequence[RowMapping]:
    """In their order; after: the start of the last one of the page before."""
    values = {"tenant": tenant, "job": job, "after": after, "limit": limit}
    return tx.execute(_SLICES, values).mappings().all()


_RUNS = text("""
    SELECT s.start, s.stop, s.state, s.epoch, s.worker, s.claimed_at, s.finished_at, s.n_succeeded,
           s.n_failed, w.name AS worker_name
    FROM (SELECT * FROM slices
          WHERE job_id = :job AND tenant_id = :tenant AND claimed_at IS NOT NULL
            AND state IN ('leased', 'done')
          ORDER BY claimed_at DESC LIMIT :limit) AS s
    LEFT JOIN workers w ON w.incarnation = s.worker
    ORDER BY s.claimed_at, s.start
""")


def runs(tx: Tx, tenant: str, job: UUID, limit: int) -> Sequence[RowMapping]:
    """The slices that were claimed last and run or are done, in the order in which they were."""
    values = {"tenant": tenant, "job": job, "limit": limit}
    return tx.execute(_RUNS, values).mappings().all()


_STATES = text("""
    SELECT state, count(*) AS slices, sum(epoch) AS deliveries FROM slices
    WHERE job_id = :job AND tenant_id = :tenant GROUP BY state
""")


def slice_states(tx: Tx, tenant: str, job: UUID) -> Sequence[RowMapping]:
    """How many slices there are in each state, and how often they were claimed: state, slices,
    deliveries."""
    return tx.execute(_STATES, {"tenant": tenant, "job": job}).mappings().all()


# OFFSET 0: one look into each slice, in their order, whatever the statistics say.
_ENDED = """
    SELECT r.* FROM slices s
    CROSS JOIN LATERAL (
        SELECT seq, error FROM results
        WHERE job_id = :job AND tenant_id = :tenant AND seq >= s.start AND seq < s.stop
          AND outcome = '{outcome}'
        ORDER BY seq OFFSET 0) AS r
    WHERE s.job_id = :job AND s.tenant_id = :tenant AND s.n_{outcome} > 0
"""
_CODES = text(f"""
    SELECT code, count(*) AS items, min(seq) AS first_seq,
           (array_agg(message ORDER BY seq))[1] AS first_message
    FROM (SELECT seq, CAST(error AS json) ->> 'code' AS code,
                 CAST(error AS json) ->> 'message' AS message
          FROM ({_ENDED.format(outcome="failed")} ORDER BY s.start LIMIT {MOST_COUNTED}) AS f) AS e
    GROUP BY code ORDER BY items DESC, code
""")


def error_codes(tx: Tx, tenant: str, job: UUID) -> Sequence[RowMapping]:
    """The failed items by the code of their error: code, items, first_seq, first_message."""
    return tx.execute(_CODES, {"tenant": tenant, "job": job}).mappings().all()


# An item's text may be long: what a list shows of it is its beginning. A reference to the blob
# store is as long as that.
_SHOWN = 200
_ITEM = f"""
    i.seq, i.custom_id, left(i.input, {_SHOWN}) AS input, r.outcome, r.attempts, r.wait_ms,
    left(r.output, {_SHOWN}) AS output, r.error
"""
_ITEMS = text(f"""
    SELECT {_ITEM}, s.state AS slice_state
    FROM (SELECT * FROM items
          WHERE job_id = :job AND tenant_id = :tenant AND seq > :after
          ORDER BY seq LIMIT :limit) AS i
    LEFT JOIN results r ON r.job_id = :job AND r.seq = i.seq
    LEFT JOIN LATERAL (SELECT state FROM slices
                       WHERE job_id = :job AND start <= i.seq ORDER BY start DESC LIMIT 1) AS s
         ON true
    ORDER BY i.seq
""")
_ITEMS_ENDED = """
    SELECT {item}, 'done' AS slice_state
    FROM (SELECT r.* FROM slices s
          CROSS JOIN LATERAL (
              SELECT * FROM results
              WHERE job_id = :job AND tenant_id = :tenant AND seq >= s.start AND seq < s.stop
                AND seq > :after AND outcome = CAST(:outcome AS outcome) {code}
              ORDER BY seq LIMIT :limit) AS r
          WHERE s.job_id = :job AND s.tenant_id = :tenant AND s.stop > :after + 1
            AND s.n_{outcome} > 0
          ORDER BY s.start, r.seq LIMIT :limit) AS r
    JOIN LATERAL (SELECT * FROM items WHERE job_id = :job AND seq = r.seq OFFSET 0) AS i ON true
    ORDER BY r.seq
"""
_OF_CODE = "AND CAST(error AS json) ->> 'code' = :code"


def items(
    tx: Tx,
    tenant: str,
    job: UUID,
    *,
    outcome: Outcome | None = None,
    code: str = "",
    after: int = -1,
    limit: int,
) -> Sequence[RowMapping]:
    """Items in their order, inputs and outputs cut; after: the seq of the last one of the page
    before. outcome: those alone that ended so; code: of the failed, those alone with that error."""
    values = {"tenant": tenant, "job": job, "after": after, "limit": limit}
    if outcome is None:
        return tx.execute(_ITEMS, values).mappings().all()
    query = _ITEMS_ENDED.format(item=_ITEM, outcome=outcome, code=_OF_CODE if code else "")
    return tx.execute(text(query), values | {"outcome": outcome, "code": code}).mappings().all()


_NAMED = text("""
    SELECT min(seq) FROM items
    WHERE job_id = :job AND tenant_id = :tenant AND custom_id = :custom_id
""")


def find_seq(tx: Tx, tenant: str, job: UUID, custom_id: str) -> int | None:
    """Of the item that its client calls so; reads all of the job's."""
    values = {"tenant": tenant, "job": job, "custom_id": custom_id}
    found: int | None = tx.scalar(_NAMED, values)
    return found


_ATTEMPTS = text("""
    SELECT n, error, at, due_at, launch_id FROM attempts
    WHERE job_id = :job AND tenant_id = :tenant AND seq = :seq ORDER BY n
""")


def attempts(tx: Tx, tenant: str, job: UUID, seq: int) -> Sequence[RowMapping]:
    """An item's failures that were not final, in their order."""
    return tx.execute(_ATTEMPTS, {"tenant": tenant, "job": job, "seq": seq}).mappings().all()


# Results of one slice lie in few launches, and those of a launch in few slices.
_LAUNCHES = text(f"""
    SELECT l.*, w.name AS worker_name, m.own
    FROM (SELECT launch_id, count(*) AS own FROM (
              SELECT launch_id FROM results
              WHERE job_id = :job AND tenant_id = :tenant AND launch_id IS NOT NULL
              ORDER BY seq DESC LIMIT {MOST_COUNTED}) AS r
          GROUP BY launch_id) AS m
    JOIN launches l ON l.id = m.launch_id
    LEFT JOIN workers w ON w.incarnation = l.incarnation
    ORDER BY l.started_at DESC LIMIT :limit
""")


def launches(tx: Tx, tenant: str, job: UUID, limit: int) -> Sequence[RowMapping]:
    """The latest launches that the last MOST_COUNTED of its items ended in. own: how many of the
    items in it were the job's."""
    values = {"tenant": tenant, "job": job, "limit": limit}
    return tx.execute(_LAUNCHES, values).mappings().all()
