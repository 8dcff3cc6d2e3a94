"""Reports of a worker's supervisor: its worker is alive, quarantined, or dead and how it died.

Loaded once a worker runs: SQLAlchemy and redis-py would delay its start.
"""

import logging
from collections.abc import Collection

from redis import RedisError
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock
from jobs.calls import redis as call_redis
from jobs.settings import Settings
from jobs.store import db
from jobs.store.queue import workers
from jobs.store.queue.workers import Death
from jobs.store.registry import snapshot
from jobs.store.registry.follower import Adopt, look

DatabaseError = SQLAlchemyError
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0  # between two tries

_log = logging.getLogger("millrace.processes")


def connect(settings: Settings) -> Database:
    """Opens a pool of one connection."""
    return db.connect(settings.database_url, pool_size=1, statement_timeout_s=5, role=db.WORKER)


def report_alive(database: Database, incarnation: int) -> None:
    """Keeps a worker from being taken for silent. Raises DatabaseError."""
    with database.execution_options(isolation_level="AUTOCOMMIT").connect() as tx:
        workers.record_watched(tx, incarnation)


def read_registry(database: Database, adopt: Adopt) -> None:
    """Reads the registry's models, for `adopt`. Raises DatabaseError."""
    look(database, adopt, snapshot.read_with_unfinished)


def report_quarantined(database: Database, incarnation: int, died: Death) -> None:
    """Quarantines a worker that has died. Raises DatabaseError."""
    with database.begin() as tx:
        workers.report_death(tx, incarnation, died)
        workers.quarantine(tx, incarnation)


def is_quarantined(database: Database, incarnation: int) -> bool:
    """Returns False once an operator has resumed the worker. Raises DatabaseError."""
    with database.begin() as tx:
        return workers.is_quarantined(tx, incarnation)


def report_death(
    settings: Settings,
    models: Collection[str],
    spared: Collection[str],
    incarnation: int,
    how: Death,
    for_s: float,
) -> None:
    """Reports a worker's death to Redis and the database, retrying for for_s. spared: those of the
    models whose calls are no reason for it.

    Where it fails the lease expires by itself.
    """
    _report_to_redis(settings, models, spared, incarnation)
    give_up_s, pause_s = clock.monotonic() + for_s, _FIRST_PAUSE_S
    database = connect(settings)
    try:
        while True:
            try:
                with database.begin() as tx:
                    workers.report_death(tx, incarnation, how)
                return
            except DatabaseError as error:
                if clock.monotonic() > give_up_s:
                    _log.warning("couldn't report that worker %d died: %s", incarnation, error)
                    return
            clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
    finally:
        database.dispose()


def _report_to_redis(
    settings: Settings, models: Collection[str], spared: Collection[str], incarnation: int
) -> None:
    try:
        with call_redis.connect(settings.redis_url, timeout_s=1.0) as client:
            call_redis.declare_dead(client, models, str(incarnation), spared)
    except RedisError as error:
        _log.warning("couldn't report to Redis that worker %d died: %s", incarnation, error)
