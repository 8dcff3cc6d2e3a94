"""Leases of slices: claim, read, renew. A lease is fenced by its owner and its epoch, which only
grows, unless a failover loses commits: then the owner tells two leases of one epoch apart.

All times are the database's; the clocks of workers decide nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID

from sqlalchemy import Row, text

from jobs.models.model import DEFAULT_SLICE_ITEMS, Model
from jobs.states import INTERRUPTIBLE, JobClass
from jobs.store.db import Tx, cursor
from jobs.store.queue import fair_share, present
from jobs.store.queue.backlog import model_arrays

MAX_SLICES = 500
"""Most slices of a claim: one-item jobs come by the hundred."""

# Of one claim: tenants that it considers, those that were served least, and slices of all of them.
_FEWEST_TENANTS, _MOST_OFFERED, _FEW = 50, 25_000, 16  # few: of more inputs than a slice has


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run one slice."""

    job_id: UUID  #: its job
    start: int  #: seq of the first item
    stop: int  #: seq after the last item
    epoch: int  #: number of this claim
    tenant: str  #: tenant of the job
    model: str  #: name@version
    params: str  #: JSON object; params of the job
    suspect: bool = False  #: True if a worker died with it: it runs alone
    retrying: bool = False  #: True if some of its items failed before
    job_class: JobClass = "standard"  #: scheduling class of the job
    priority: int = 0  #: priority of the job, higher first
    due_at: datetime = datetime.min.replace(tzinfo=UTC)  #: place among its tenant's slices
    weight: float = 1.0  #: fair-share weight of the tenant
    each: int = 1  #: mean number of inputs an item has, rounded up
    traceparent: str | None = None  #: packed TraceContext of the job's request
    owner: int = 0  #: incarnation that holds it
    dialect: str = "native"  #: dialect of the job

    @property
    def inputs(self) -> int:
        """Number of inputs that its items have, about."""
        return (self.stop - self.start) * self.each

    @property
    def place(self) -> tuple[Any, ...]:
        """Key that sorts the slices of one tenant."""
        return -self.priority, self.due_at, self.job_id, self.start


_FIELDS = len(fields(Lease))

# All statements of this file are written out: each is one round trip of a claim, over arrays of
# models or leases.

# Both claims choose by start-time fair queueing (Goyal et al. 1996), in virtual time of device
# milliseconds by weight (table `turns`). `present`: the tenants that have anything ready of the
# wanted models, by a loose index scan, or from a list (jobs/store/queue/present.py). `served`:
# those that were served least, at the virtual time where each starts; one that was idle starts
# where the pool is. Where many start there, the one that was served longest ago comes first.
# `offered`: the first slices of each in the tenant's own order, each at the time at which it would
# start if all before it were taken. The earliest decides which model it is; of that model as many
# are taken, in this order, as fit the room, the first in any case, and none that starts after the
# last offered slice of a tenant that may have more. More inputs than a slice has are taken in a few
# slices, of 4 MiB at most. Room and cost count inputs: an item may be a list of them.
# `fair_share.lock_pool` keeps the pool's other claims out meanwhile.
#
# A preemptive claim takes slices for tenants that the worker's leases (`held`) keep waiting: of the
# tenants without a lease those that were served less than every tenant with one, and of a tenant
# with leases the slices that precede all that it holds.
_STATEMENT = """
    WITH RECURSIVE wanted AS (
        SELECT *, model || '@' || version = ANY(:listed) AS listed{stays}
        FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[]), CAST(:rooms AS int[]),
                    CAST(:many AS int[]), CAST(:item_ms AS float8[]))
                 WITH ORDINALITY AS w (model, version, room, many, item_ms, turn)
    ){held}, {present}, served AS (
        SELECT w.*, p.tenant_id, coalesce(n.weight, 1) AS weight{last}{until},
               coalesce(t.time_ms, 0) AS had_ms,
               greatest(coalesce(t.time_ms, 0), CAST(:now_ms AS float8)) AS from_ms
        FROM {source} p
        JOIN wanted w USING (turn)
        LEFT JOIN turns t ON t.pool = :pool AND t.tenant_id = p.tenant_id
        LEFT JOIN tenants n ON n.tenant_id = p.tenant_id{join}
        WHERE p.tenant_id IS NOT NULL{may_claim}
        ORDER BY from_ms, had_ms, p.tenant_id LIMIT :most_tenants
    ), most AS (
        SELECT least(:most, :most_offered / greatest(count(*), 1)) AS each FROM served
    ), offered AS (
        SELECT st.turn, st.room, st.many, st.weight, st.had_ms{until_of}, s.*,
               s.inputs * st.item_ms AS cost_ms,
               st.from_ms + st.item_ms / st.weight
                   * (sum(s.inputs) OVER (PARTITION BY st.turn, s.tenant_id ORDER BY s.place)
                      - s.inputs) AS starts_ms
        FROM served st, LATERAL (
            SELECT tenant_id, job_id, start, priority, due_at,
                   inputs * (stop - start - n_succeeded - n_failed - n_cancelled - n_expired)
                       AS inputs,
                   row_number() OVER (ORDER BY priority DESC, due_at, job_id, start) AS place
            FROM (SELECT * FROM slices
                  WHERE state = 'ready' AND NOT suspect AND model = st.model
                    AND version = st.version AND tenant_id = st.tenant_id AND not_before <= now()
                    {may_go}
                  ORDER BY tenant_id, priority DESC, due_at, job_id, start
                  LIMIT least(st.room, (SELECT each FROM most))) AS its_first
        ) AS s{precedes}
    ), ordered AS (
        SELECT *, first_value(turn) OVER (ORDER BY starts_ms, turn, due_at) AS first_turn
        FROM offered
        WHERE starts_ms <= (SELECT coalesce(min(last_ms), 'infinity')
                            FROM (SELECT max(starts_ms) AS last_ms FROM offered, most
                                  GROUP BY turn, tenant_id, each HAVING count(*) >= each) AS cut)
              {comes_first}
    ), chosen AS (
        SELECT *, sum(inputs) OVER in_turn AS filled, row_number() OVER in_turn AS nth
        FROM ordered WHERE turn = first_turn
        WINDOW in_turn AS (ORDER BY starts_ms, had_ms, due_at, tenant_id, place)
    ), taken AS (
        SELECT slices.job_id, slices.start, chosen.weight, chosen.cost_ms, chosen.starts_ms
        FROM chosen JOIN slices USING (job_id, start)
        WHERE (chosen.filled <= chosen.room OR chosen.nth = 1) AND chosen.nth <= :most
          AND (chosen.filled <= chosen.many OR chosen.nth <= :few)
          AND slices.state = 'ready' AND NOT slices.suspect
        FOR UPDATE OF slices SKIP LOCKED
    )
    UPDATE slices
    SET state = 'leased', epoch = epoch + 1, charged_ms = taken.cost_ms,
        lease_owner = :owner, worker = :owner, claimed_at = now(),
        lease_until = now() + make_interval(secs => :lease_s)
    FROM taken JOIN jobs ON jobs.id = taken.job_id
    WHERE slices.job_id = taken.job_id AND slices.start = taken.start
    RETURNING slices.job_id, slices.start, stop, epoch, slices.tenant_id,
              slices.model || '@' || slices.version, jobs.params, suspect, retrying,
              jobs.class, slices.priority, due_at, taken.weight, slices.inputs, jobs.traceparent,
              lease_owner, jobs.dialect, taken.cost_ms, taken.starts_ms, {crowded} AS crowded
"""
_ANYBODY = {"held": "", "last": "", "join": "", "may_claim": "", "precedes": ""}
_KEPT_WAITING = {
    "held": f", {present.HELD}",
    "last": ", h.priority, h.due_at",
    "join": """
        LEFT JOIN held h ON h.tenant_id = p.tenant_id""",
    "may_claim": f"""
          AND (h.tenant_id IS NOT NULL
               OR greatest(coalesce(t.time_ms, 0), :now_ms) < {present.LEAST_SERVED})""",
    "precedes": """
        WHERE st.priority IS NULL OR (-s.priority, s.due_at) < (-st.priority, st.due_at)""",
}
_PRESENT = {
    "present": present.PRESENT,
    "source": "present",
    "until": "",
    "until_of": "",
    "comes_first": "",
    "crowded": present.CROWDED,
}
_LISTED = _PRESENT | {
    "present": present.WITH_LISTED,
    "source": "candidates",
    "until": ", p.until_ms",
    "until_of": ", st.until_ms",
    "comes_first": "AND starts_ms <= until_ms",
}
_CLAIMS = {
    (preemptive, listed, stays): text(_STATEMENT.format(**who, **source, **which))
    for preemptive, who in ((False, _ANYBODY), (True, _KEPT_WAITING))
    for listed, source in ((False, _PRESENT), (True, _LISTED))
    for stays, which in ((False, present.ALL), (True, present.INTERRUPTIBLE))
}

# A suspect slice runs alone, whoever's it is, at no charge: of those that were claimed least the
# first one that is due. One that kills each worker doesn't keep the others waiting, and what
# succeeds meanwhile tells it from a device that fails.
_CLAIM_SUSPECT = text("""
    UPDATE slices
    SET state = 'leased', epoch = epoch + 1, charged_ms = 0,
        lease_owner = :owner, worker = :owner, claimed_at = now(),
        lease_until = now() + make_interval(secs => :lease_s)
    FROM (SELECT job_id, start FROM slices
          WHERE state = 'ready' AND suspect AND model = :model AND version = :version
            AND not_before <= now()
          ORDER BY epoch, due_at, job_id, start LIMIT 1 FOR UPDATE SKIP LOCKED) AS kept
    JOIN jobs ON jobs.id = kept.job_id
    WHERE slices.job_id = kept.job_id AND slices.start = kept.start
    RETURNING slices.job_id, slices.start, stop, epoch, slices.tenant_id,
              slices.model || '@' || slices.version, jobs.params, suspect, retrying, jobs.class,
              slices.priority, due_at, CAST(1 AS float8), 1, jobs.traceparent, lease_owner, dialect
""")

# Jobs are locked in the order of their ids.
_STARTED = text("""
    UPDATE jobs SET state = 'running', started_at = coalesce(started_at, now())
    WHERE id IN (SELECT id FROM jobs WHERE id = ANY(:jobs) AND state = 'queued'
                 ORDER BY id FOR UPDATE)
""")


@dataclass(frozen=True, slots=True)
class PreemptiveClaim:
    """A claim by a worker that has work, for tenants that this work keeps waiting."""

    in_hand: Sequence[Lease] = ()  #: leases that the worker holds

    def as_values(self) -> dict[str, Any]:
        """Parameters of `held`: each tenant with the last place among its leases."""
        last: dict[str, tuple[int, datetime]] = {}
        for lease in self.in_hand:
            place = -lease.priority, lease.due_at
            last[lease.tenant] = max(place, last.get(lease.tenant, place))
        return {
            "tenants": list(last),
            "priorities": [-place[0] for place in last.values()],
            "dues": [place[1] for place in last.values()],
        }


def claim(
    tx: Tx,
    owner: int,
    rooms: Mapping[Model, int],
    lease_s: float,
    *,
    pool: str = "default",
    item_ms: Mapping[Model, float] = MappingProxyType({}),
    preemptive: PreemptiveClaim | None = None,
    stays: Collection[str] = (),
) -> list[Lease]:
    """Claims slices for an incarnation, of the model whose turn it is.

    They have at most `rooms[model]` inputs, more than a slice may have only if they are few, but at
    least one slice is taken where any is ready. item_ms: predicted device time of an item, ms; the
    tenant is charged with it. preemptive: take only what the worker's own leases keep waiting.
    stays: models (name@version) of which jobs that aren't to be interrupted are left to others.
    """
    wanted = {model: room for model, room in rooms.items() if room > 0}
    values = model_arrays(wanted) | {"pool": pool}
    if preemptive:
        values |= preemptive.as_values()
    if not wanted or (preemptive and not present.any_kept_waiting(tx, values)):
        return []
    now_ms, lists = fair_share.lock_pool(tx, pool)
    values |= {"owner": owner, "lease_s": lease_s, "now_ms": now_ms, "most": MAX_SLICES}
    values |= {"few": _FEW, "most_offered": _MOST_OFFERED}
    values |= {
        "rooms": list(wanted.values()),
        "many": [max(DEFAULT_SLICE_ITEMS, model.limits.slice_items) for model in wanted],
        "item_ms": [item_ms.get(model, 1.0) for model in wanted],
        "most_tenants": min(max(_FEWEST_TENANTS, *wanted.values()), MAX_SLICES),
    }
    if stays:
        values |= {"stays": list(stays), "interruptible": list(INTERRUPTIBLE)}
    listed = [model for model in wanted if model.key in lists]
    present.list_next(tx, pool, now_ms, [model for model in listed if lists[model.key]])
    found = _take(tx, values, listed, preemptive)
    if listed and not (found or preemptive):  # all of the lists have been served
        present.list_next(tx, pool, now_ms, listed)
        found = _take(tx, values, listed, preemptive)
    if found and found[0].crowded:
        models = list(wanted)
        present.list_next(tx, pool, now_ms, [models[turn - 1] for turn in found[0].crowded])
    leases = _begun(tx, [Lease(*row[:_FIELDS]) for row in found])
    if found:
        # A preemptive claim comes before its time, and does not move the pool's time on for others.
        reached_ms = now_ms if preemptive else max(row.starts_ms for row in found)
        costs = [(row.tenant_id, row.cost_ms / row.weight) for row in found]
        fair_share.charge(tx, pool, now_ms, reached_ms, costs)
    return leases


def _take(
    tx: Tx, values: dict[str, Any], listed: Sequence[Model], preemptive: PreemptiveClaim | None
) -> Sequence[Row[Any]]:
    """Runs the statement of a claim. listed: models that may have a list of tenants."""
    statement = _CLAIMS[preemptive is not None, bool(listed), "stays" in values]
    return tx.execute(statement, values | {"listed": [model.key for model in listed]}).all()


def claim_suspect(tx: Tx, owner: int, model: Model, lease_s: float) -> list[Lease]:
    """Claims one suspect slice, for a worker that holds no other lease."""
    values = {"owner": owner, "model": model.name, "version": model.version, "lease_s": lease_s}
    return _begun(tx, [Lease(*row) for row in tx.execute(_CLAIM_SUSPECT, values)])


def _begun(tx: Tx, leases: list[Lease]) -> list[Lease]:
    """Marks their jobs as running; returns the leases in the order in which they are to run."""
    if leases:
        tx.execute(_STARTED, {"jobs": list({lease.job_id for lease in leases})})
    return sorted(leases, key=lambda lease: lease.place)


# OFFSET 0 keeps the planner from a join: where most jobs are small it takes each for small, and
# scans all results of a large one for each of its items.
_INPUTS = """
    SELECT s.n, i.seq, i.input, i.params, {failures}
    FROM unnest(%b::int[], %b::uuid[], %b::int[], %b::int[]) AS s (n, job_id, start, stop),
         LATERAL (
             SELECT seq, {input} AS input, params FROM items
             WHERE items.job_id = s.job_id AND items.seq >= s.start AND items.seq < s.stop
               AND NOT EXISTS (SELECT 1 FROM results
                               WHERE results.job_id = s.job_id AND results.seq = items.seq
                               OFFSET 0){among}
             ORDER BY seq) AS i {attempts}
"""
_AGAIN = """LEFT JOIN LATERAL (
            SELECT '[' || string_agg(error, ',' ORDER BY attempts.n) || ']' AS errors,
                   max(due_at) AS due_at
            FROM attempts WHERE attempts.job_id = s.job_id AND attempts.seq = i.seq
        ) AS a ON true WHERE a.due_at IS NULL OR a.due_at <= now()
"""

InputRow: TypeAlias = tuple[int, int, str, str | None, str | None]


def input_queries(input: str = "input", among: str = "") -> tuple[str, str]:
    """Returns statements for `read_inputs`, by whether a lease was retried. input: SQL of an item's
    input; among: more conditions on the rows of `items`."""
    again = _INPUTS.format(input=input, among=among, failures="a.errors", attempts=_AGAIN)
    return _INPUTS.format(input=input, among=among, failures="NULL", attempts=""), again


_ALL = input_queries()


def read_inputs(
    tx: Tx, leases: Sequence[Lease], queries: tuple[str, str] = _ALL, *values: Any
) -> list[InputRow]:
    """Reads every item that has no result yet and is not waiting for its next attempt.

    Returns (index of the lease, seq, input, params, earlier errors as a JSON array).
    """
    rows: list[InputRow] = []
    for query, retrying in zip(queries, (False, True), strict=True):
        its = [(n, one) for n, one in enumerate(leases) if one.retrying is retrying]
        if slices := [(n, one.job_id, one.start, one.stop) for n, one in its]:
            columns = [list(column) for column in zip(*slices, strict=True)]
            rows += cursor(tx).execute(query, [*columns, *values]).fetchall()
    return rows


HELD = """
    unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[]), CAST(:epochs AS int[]),
           CAST(:owners AS bigint[])) AS mine (job_id, start, epoch, lease_owner)
    JOIN slices s USING (job_id, start, epoch, lease_owner)
"""
"""SQL: the slices `s` of leases (see `lease_arrays`); where one isn't leased, or by another owner,
the lease is lost."""

_LOCK_HELD = text(f"""
    SELECT s.job_id, s.start FROM {HELD}
    WHERE s.state = 'leased' ORDER BY s.job_id, s.start FOR UPDATE OF s
""")


def lock_held(tx: Tx, leases: Sequence[Lease]) -> set[tuple[UUID, int]]:
    """Locks the slices of leases that are still held, in the order of their keys; returns these."""
    return {(row[0], row[1]) for row in tx.execute(_LOCK_HELD, lease_arrays(leases))}


# Slices that a verb has locked are left as they are: a long cancel must not stop the renewal.
_RENEW = text(f"""
    UPDATE slices SET lease_until = now() + make_interval(secs => :lease_s)
    FROM (SELECT s.job_id, s.start FROM {HELD}
          WHERE s.state = 'leased' ORDER BY s.job_id, s.start FOR UPDATE OF s SKIP LOCKED) AS held
    WHERE slices.job_id = held.job_id AND slices.start = held.start
""")
_STILL_HELD = text(f"""
    SELECT s.job_id, s.start, j.state FROM {HELD} JOIN jobs j ON j.id = s.job_id
    WHERE s.state = 'leased'
""")


def renew(tx: Tx, leases: Sequence[Lease], lease_s: float) -> dict[tuple[UUID, int], str]:
    """Prolongs the leases that are still held: (job, start) -> the state of its job.

    A lease that is missing from the answer is lost.
    """
    mine = lease_arrays(leases)
    tx.execute(_RENEW, mine | {"lease_s": lease_s})
    return {(row[0], row[1]): row[2] for row in tx.execute(_STILL_HELD, mine)}


def lease_arrays(leases: Sequence[Lease]) -> dict[str, Any]:
    """Returns leases as the parameters jobs, starts, epochs, owners."""
    return {
        "jobs": [lease.job_id for lease in leases],
        "starts": [lease.start for lease in leases],
        "epochs": [lease.epoch for lease in leases],
        "owners": [lease.owner for lease in leases],
    }
