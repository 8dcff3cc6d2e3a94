"""Connections: SQLAlchemy's pool over psycopg, and psycopg itself for rows by the thousand."""

from functools import partial
from typing import Any, TypeAlias
from weakref import WeakSet

import psycopg
from psycopg import Connection as DriverConnection
from psycopg import Cursor
from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, text
from sqlalchemy.exc import InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from jobs import clock
from jobs.telemetry.metrics import record

Tx: TypeAlias = Connection
"""An open transaction."""

CONNECTION_ERRORS = (
    OperationalError,
    InternalError,
    PoolTimeout,
    psycopg.OperationalError,
    psycopg.InternalError,
)
"""What it raises when the database can't be reached, gives up, or has ended a transaction that was
idle: SQLAlchemy's own, and psycopg's where rows go past it (COPY, arrays)."""

API, WORKER = "millrace_api", "millrace_worker"
"""The roles of processes: both own nothing; the api sees the tenant that a transaction names."""

WORK_CHANNEL = "millrace_work"
"""NOTIFY on it says that slices became claimable."""

TRANSFERS_CHANNEL = "millrace_transfers"
"""NOTIFY on it says that a job waits for its input to be read, or its results to be written."""

KEYS_CHANNEL = "millrace_keys"
"""NOTIFY on it says that what credentials stand for has changed; its payload is whose do."""

TCP_OPTIONS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # keepalives say nothing while a query waits to be received
}
"""What a connection is given, so that a server that stopped answering is noticed."""


def connect(
    url: str,
    pool_size: int = 8,
    statement_timeout_s: float = 60,
    idle_s: float = 5,
    role: str = "",
) -> Engine:
    """A pool of connections, in this role, whoever the URL logs in (empty: as that one).

    A statement that takes longer than the timeout fails. A transaction that is idle for `idle_s`
    ends: a process that froze in it must not hold its locks. A server that stops answering is
    noticed by TCP within half a minute."""
    options: dict[str, Any] = {
        "statement_timeout": int(statement_timeout_s * 1000),
        "idle_in_transaction_session_timeout": int(idle_s * 1000),
        "timezone": "UTC",
    }
    if role:
        options["role"] = role
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_pre_ping=True,
        hide_parameters=True,  # they are payloads, and errors are logged
        connect_args={
            "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
            **TCP_OPTIONS,
        },
    )
    if role:
        event.listen(engine, "connect", partial(_refuse_others, role))
    event.listen(engine, "checkout", _lent)
    event.listen(engine, "checkin", _returned)
    event.listen(engine, "handle_error", lambda error: record.database_error())
    _POOLS.add(engine.pool)  # type: ignore[arg-type]
    return engine


_POOLS: "WeakSet[QueuePool]" = WeakSet()
"""All of this process, for `tell_of_connections`."""
_SINCE = "millrace.lent"


def _lent(connection: object, entry: Any, proxy: object) -> None:
    entry.info[_SINCE] = clock.monotonic()


def _returned(connection: object, entry: Any) -> None:
    if since_s := entry.info.pop(_SINCE, None):
        record.transaction(clock.monotonic() - since_s)


def record_connections() -> None:
    """How many are used now, and how many idle."""
    pools = list(_POOLS)
    used, idle = (pool.checkedout() for pool in pools), (pool.checkedin() for pool in pools)
    record.connections(sum(used), sum(idle))


def _refuse_others(role: str, connection: DriverConnection[Any], record: object) -> None:
    """A pooler between us and PostgreSQL may have dropped what was asked of the connection."""
    [found] = connection.execute("SELECT current_user").fetchone() or [None]
    connection.rollback()
    if found != role:
        raise psycopg.OperationalError(
            f"the connection acts as {found}, not as {role}: what is between us and PostgreSQL "
            "must pass the startup parameter `options` on"
        )


def driver(tx: Tx) -> DriverConnection[tuple[Any, ...]]:
    """psycopg's connection under this transaction."""
    connection: Any = tx.connection.driver_connection
    return connection  # type: ignore[no-any-return]


def cursor(tx: Tx) -> Cursor[tuple[Any, ...]]:
    """A psycopg cursor in this transaction: COPY, and arrays sent in binary."""
    return driver(tx).cursor()


def disable_statement_timeout(tx: Tx) -> None:
    """No statement timeout in this transaction: its work grows with the job, and it is one."""
    tx.execute(text("SET LOCAL statement_timeout = 0"))


def notify_work(tx: Tx) -> None:
    """Tells keepers, at commit, that there is something to claim."""
    tx.execute(text(f"NOTIFY {WORK_CHANNEL}"))


def notify_keys(tx: Tx, tenant: str) -> None:
    """Tells api processes, at commit, that this tenant's keys, limits or terms changed."""
    about = {"channel": KEYS_CHANNEL, "tenant": tenant}
    tx.execute(text("SELECT pg_notify(:channel, :tenant)"), about)


def plain_url(url: str) -> str:
    """The same database, as psycopg and psql spell it."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)
