"""Workers, the models that they hold, and their launches."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import text

from jobs.store.db import Tx, cursor

Death = Literal["killed", "crashed", "hung"]
"""killed: from outside; crashed: by what it did, memory included; hung: it had to be ended."""

ModelState = Literal["absent", "loading", "warming", "ready", "draining", "failed"]
"""Of one model in one worker; workers/process/residency.py says what each means."""

_REGISTER = text("""
    INSERT INTO workers (name, pool, device, models, state)
    VALUES (:name, :pool, :device, :models, 'loading') RETURNING incarnation
""")
_HEARTBEAT = text("""
    UPDATE workers
    SET heartbeat_at = now(), state = CAST(:state AS text),
        ended_at = CASE WHEN CAST(:state AS text) = 'stopped' THEN now() END
    WHERE incarnation = :incarnation RETURNING drain_asked_at IS NOT NULL
""")
_WATCHED = text("UPDATE workers SET watched_at = now() WHERE incarnation = :incarnation")
_DIED = text("""
    UPDATE workers SET state = 'lost', died = :how, ended_at = now()
    WHERE incarnation = :incarnation AND ended_at IS NULL
""")
_LOSE = text("""
    UPDATE workers SET state = 'lost'
    WHERE state IN ('loading', 'ready', 'draining')
      AND heartbeat_at < now() - make_interval(secs => :silent_s)
""")
# A worker that is silent, stopped or lost holds nothing.
_ALIVE = """
    FROM worker_models m JOIN workers w USING (incarnation)
    WHERE w.state IN ('loading', 'ready', 'draining')
      AND w.heartbeat_at > now() - make_interval(secs => :silent_s)
"""
_READY = text(f"""
    SELECT m.model, count(*) AS workers {_ALIVE}
      AND m.state = 'ready' AND w.state <> 'draining'
    GROUP BY 1
""")
_STANDING = text(f"""
    SELECT m.model,
           CASE WHEN w.state = 'draining' AND m.state = 'ready' THEN 'draining' ELSE m.state END
               AS state,
           count(*) AS workers, max(m.load_ms) AS load_ms, max(m.error) AS error {_ALIVE}
    GROUP BY 1, 2
""")
_FORGET_MODELS = text("""
    DELETE FROM worker_models WHERE incarnation = :incarnation AND model <> ALL(:models)
""")
_TELL_MODELS = text("""
    INSERT INTO worker_models AS old (incarnation, model, state, memory_mb, load_ms, error)
    SELECT :incarnation, * FROM unnest(CAST(:models AS text[]), CAST(:states AS text[]),
        CAST(:memory_mb AS real[]), CAST(:load_ms AS real[]), CAST(:errors AS text[]))
    ON CONFLICT (incarnation, model) DO UPDATE
    SET state = excluded.state, memory_mb = excluded.memory_mb, load_ms = excluded.load_ms,
        error = excluded.error,
        since = CASE WHEN old.state = excluded.state THEN old.since ELSE now() END
""")

# One worker at a time decides: what it claims is there for the next one to see.
_LOADS = text("SELECT pg_advisory_xact_lock(hashtextextended('millrace.loads', 0))")
_CLAIM_LOAD = text(f"""
    UPDATE worker_models SET state = 'loading', since = now(), error = ''
    WHERE incarnation = :incarnation AND model = :model AND NOT EXISTS (
        SELECT 1 {_ALIVE}
          AND m.model = :model AND m.incarnation <> :incarnation AND w.state <> 'draining'
          AND m.state IN ('loading', 'warming', 'ready')
    )
""")


def register(tx: Tx, name: str, pool: str, device: str, models: Sequence[str]) -> int:
    """A new incarnation, which loads its models; its number is never used again."""
    values = {"name": name, "pool": pool, "device": device, "models": list(models)}
    incarnation: int = tx.scalars(_REGISTER, values).one()
    return incarnation


def heartbeat(tx: Tx, incarnation: int, state: str) -> bool:
    """Returns whether it is asked to drain."""
    asked = tx.scalars(_HEARTBEAT, {"incarnation": incarnation, "state": state}).one_or_none()
    return bool(asked)


def record_watched(tx: Tx, incarnation: int) -> None:
    """Its supervisor sees that it lives, whatever keeps it from saying so itself."""
    tx.execute(_WATCHED, {"incarnation": incarnation})


def report_death(tx: Tx, incarnation: int, how: Death) -> None:
    """What its supervisor saw; slices of one that was killed are free again at no cost, those of
    any other are suspect."""
    tx.execute(_DIED, {"incarnation": incarnation, "how": how})


def mark_lost(tx: Tx, silent_s: float) -> int:
    """Marks workers that have been silent for so long as lost; returns their number."""
    return tx.execute(_LOSE, {"silent_s": silent_s}).rowcount


def ready_counts(tx: Tx, silent_s: float) -> dict[str, int]:
    """Workers in which it is ready, by model@version."""
    return {row.model: row.workers for row in tx.execute(_READY, {"silent_s": silent_s})}


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model over all workers: how many have it in each state; how long it took to load at most
    (0: not known); why it failed, where it did."""

    states: Mapping[ModelState, int]
    load_ms: float
    error: str


NOWHERE = ModelStatus({}, 0.0, "")


def model_statuses(tx: Tx, silent_s: float) -> dict[str, ModelStatus]:
    """By model@version, for every model that a worker knows."""
    states: dict[str, dict[ModelState, int]] = {}
    load_ms: dict[str, float] = {}
    errors: dict[str, str] = {}
    for row in tx.execute(_STANDING, {"silent_s": silent_s}):
        states.setdefault(row.model, {})[row.state] = row.workers
        load_ms[row.model] = max(row.load_ms, load_ms.get(row.model, 0.0))
        errors[row.model] = max(row.error, errors.get(row.model, ""))
    return {model: ModelStatus(states[model], load_ms[model], errors[model]) for model in states}


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model in one worker. load_ms: 0 until it was loaded; error: why it failed."""

    model: str
    state: ModelState
    memory_mb: float
    load_ms: float
    error: str


def report_models(tx: Tx, incarnation: int, rows: Sequence[ModelRow]) -> None:
    """Where every model of a worker stands; it knows no others any more."""
    told = {
        "incarnation": incarnation,
        "models": [row.model for row in rows],
        "states": [row.state for row in rows],
        "memory_mb": [row.memory_mb for row in rows],
        "load_ms": [row.load_ms for row in rows],
        "errors": [row.error for row in rows],
    }
    tx.execute(_FORGET_MODELS, told)
    tx.execute(_TELL_MODELS, told)


def claim_load(tx: Tx, incarnation: int, model: str, silent_s: float) -> bool:
    """Whether this worker is the one to load a model that was asked for: none that lives has it
    or is about to. Its row, which `tell_models` has made, then says so."""
    tx.execute(_LOADS)
    asked = {"incarnation": incarnation, "model": model, "silent_s": silent_s}
    return tx.execute(_CLAIM_LOAD, asked).rowcount > 0


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One launch, as it is kept: `incarnation << 32 | number` is its id. batch_ms: from closing it
    until the device had it."""

    id: int
    incarnation: int
    model: str
    version: str
    bucket: int
    reason: str
    items: int
    calls: int
    units: int
    padded_units: int
    predicted_ms: float
    engine_ms: float
    started_at: datetime
    batch_ms: float = 0.0


_INSERT_LAUNCHES = """
    INSERT INTO launches (id, incarnation, model, version, bucket, reason, items, calls, units,
                          padded_units, predicted_ms, engine_ms, started_at, batch_ms)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::int[], %s::text[],
                         %s::int[], %s::int[], %s::int[], %s::int[], %s::real[], %s::real[],
                         %s::timestamptz[], %s::real[])
    ON CONFLICT DO NOTHING
"""


def insert_launches(tx: Tx, launches: Sequence[LaunchRow]) -> None:
    if launches:
        columns: list[list[Any]] = [
            list(column) for column in zip(*map(astuple, launches), strict=True)
        ]
        cursor(tx).execute(_INSERT_LAUNCHES, columns)
