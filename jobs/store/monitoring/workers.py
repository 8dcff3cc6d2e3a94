"""Workers as people look at them: who is there, what they hold, what they launched; and whom to
drain."""

from collections.abc import Collection, Sequence

from sqlalchemy import RowMapping, text

from jobs.store.db import Tx

_MOST = 500
_SHOWN_H = 1
"""One that ended is shown for so many hours."""

_WORKER = """
    SELECT incarnation, name, pool, device, models, state, started_at, heartbeat_at, died, ended_at,
           drain_asked_at, extract(epoch FROM now() - heartbeat_at)::float8 AS silent_s
    FROM workers
"""
_PAGE = text(f"""{_WORKER}
    WHERE state IN ('loading', 'ready', 'draining')
       OR coalesce(ended_at, heartbeat_at) > now() - make_interval(hours => {_SHOWN_H})
    ORDER BY state IN ('stopped', 'lost'), pool, incarnation DESC LIMIT {_MOST}
""")
_ONE = text(f"{_WORKER} WHERE incarnation = :incarnation")
_HELD = text("""
    SELECT incarnation, model, state, memory_mb, load_ms, error, since
    FROM worker_models WHERE incarnation = ANY(:incarnations) ORDER BY incarnation, model
""")
# The id of a launch begins with the incarnation's: the last ones of a worker are at one place.
_LAUNCHES = text("""
    SELECT l.* FROM unnest(CAST(:incarnations AS bigint[])) AS w (incarnation), LATERAL (
        SELECT id, incarnation, model, version, bucket, reason, items, calls, units, padded_units,
               predicted_ms, engine_ms, started_at
        FROM launches
        WHERE id >= w.incarnation << 32 AND id < (w.incarnation + 1) << 32
        ORDER BY id DESC LIMIT :most
    ) AS l
    WHERE CAST(:model AS text) IS NULL OR (l.model, l.version) = (:model, :version)
""")
_ASK = text("""
    UPDATE workers
    SET drain_asked_at = CASE WHEN :drain THEN coalesce(drain_asked_at, now()) END
    WHERE incarnation = :incarnation AND ended_at IS NULL
""")


def page(tx: Tx) -> Sequence[RowMapping]:
    """Those that live, and those that ended in the last hour; living ones first."""
    return tx.execute(_PAGE).mappings().all()


def one(tx: Tx, incarnation: int) -> RowMapping | None:
    return tx.execute(_ONE, {"incarnation": incarnation}).mappings().one_or_none()


def held(tx: Tx, incarnations: Collection[int]) -> Sequence[RowMapping]:
    """The models of these workers, each with its state."""
    return tx.execute(_HELD, {"incarnations": list(incarnations)}).mappings().all()


def launches(
    tx: Tx, incarnations: Collection[int], most: int, model: str = ""
) -> Sequence[RowMapping]:
    """The last ones of each of these workers; model: only those of that name@version."""
    name, _, version = model.partition("@")
    asked = {"incarnations": list(incarnations), "most": most}
    asked |= {"model": name or None, "version": version}
    return tx.execute(_LAUNCHES, asked).mappings().all()


def request_drain(tx: Tx, incarnation: int, drain: bool) -> bool:
    """That it takes no more work, or again some; False: it has ended. It hears of it with its next
    heartbeat."""
    return tx.execute(_ASK, {"incarnation": incarnation, "drain": drain}).rowcount > 0
