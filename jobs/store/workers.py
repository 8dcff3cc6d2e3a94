"""Workers and their launches."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import text

from jobs.store.db import Tx, cursor

Death = Literal["killed", "crashed", "hung"]
"""killed: from outside; crashed: by what it did, memory included; hung: it had to be ended."""

_REGISTER = text("""
    INSERT INTO workers (name, pool, device, models, state)
    VALUES (:name, :pool, :device, :models, 'loading') RETURNING incarnation
""")
_HEARTBEAT = text("""
    UPDATE workers
    SET heartbeat_at = now(), state = CAST(:state AS text),
        ended_at = CASE WHEN CAST(:state AS text) = 'stopped' THEN now() END
    WHERE incarnation = :incarnation
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
_READY = text("""
    SELECT unnest(models) AS model, count(*) AS workers FROM workers
    WHERE state = 'ready' AND heartbeat_at > now() - make_interval(secs => :silent_s)
    GROUP BY 1
""")


def register(tx: Tx, name: str, pool: str, device: str, models: Sequence[str]) -> int:
    """A new incarnation, which loads its models; its number is never used again."""
    values = {"name": name, "pool": pool, "device": device, "models": list(models)}
    incarnation: int = tx.scalars(_REGISTER, values).one()
    return incarnation


def heartbeat(tx: Tx, incarnation: int, state: str) -> None:
    tx.execute(_HEARTBEAT, {"incarnation": incarnation, "state": state})


def watched(tx: Tx, incarnation: int) -> None:
    """Its supervisor sees that it lives, whatever keeps it from saying so itself."""
    tx.execute(_WATCHED, {"incarnation": incarnation})


def report_death(tx: Tx, incarnation: int, how: Death) -> None:
    """What its supervisor saw; slices of one that was killed are free again at no cost, those of
    any other are suspect."""
    tx.execute(_DIED, {"incarnation": incarnation, "how": how})


def lose(tx: Tx, silent_s: float) -> int:
    """Marks workers that have been silent for so long as lost; returns their number."""
    return tx.execute(_LOSE, {"silent_s": silent_s}).rowcount


def ready(tx: Tx, silent_s: float) -> dict[str, int]:
    """Ready workers by model@version."""
    return {row.model: row.workers for row in tx.execute(_READY, {"silent_s": silent_s})}


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One launch, as it is kept: `incarnation << 32 | number` is its id."""

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


_INSERT_LAUNCHES = """
    INSERT INTO launches (id, incarnation, model, version, bucket, reason, items, calls, units,
                          padded_units, predicted_ms, engine_ms, started_at)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::int[], %s::text[],
                         %s::int[], %s::int[], %s::int[], %s::int[], %s::real[], %s::real[],
                         %s::timestamptz[])
    ON CONFLICT DO NOTHING
"""


def insert_launches(tx: Tx, launches: Sequence[LaunchRow]) -> None:
    if launches:
        columns: list[list[Any]] = [
            list(column) for column in zip(*map(astuple, launches), strict=True)
        ]
        cursor(tx).execute(_INSERT_LAUNCHES, columns)
