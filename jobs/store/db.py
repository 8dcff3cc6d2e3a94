"""Connections: SQLAlchemy's pool over psycopg, and psycopg itself for COPY and arrays."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from select import POLLIN, poll
from typing import Any, TypeAlias
from weakref import WeakSet

import psycopg
from psycopg import Connection as DriverConnection
from psycopg import Cursor, Notify
from sqlalchemy import (
    Connection,
    Dialect,
    Engine,
    QueuePool,
    bindparam,
    create_engine,
    event,
    func,
    select,
    true,
)
from sqlalchemy.exc import InternalError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from jobs import clock
from jobs.settings import SettingsError
from jobs.store import pooler, roles
from jobs.store.connections import hosts
from jobs.store.connections.bounded import BoundedConnection
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
"""Errors of a database that can't be reached, gives up, or ended an idle transaction."""

API, WORKER = roles.API, roles.WORKER
"""Roles of processes."""

WORK_CHANNEL = "millrace_work"
"""Channel that announces claimable slices."""

TRANSFERS_CHANNEL = "millrace_transfers"
"""Channel that announces imports and exports."""

KEYS_CHANNEL = "millrace_keys"
"""Channel that announces changed keys, limits or terms; its payload is the tenant."""

MODELS_CHANNEL = "millrace_models"
"""Channel that announces changes of the registry of models; triggers of its tables send it."""

TCP_OPTIONS: dict[str, Any] = {
    "connect_timeout": hosts.CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # keepalives say nothing while a query waits to be received
}
"""Options by which a server that stopped answering is noticed."""


_POOL_S = 10.0  # for a connection to become free
_GRACE_S = 2.0  # beyond the server's own limit, for it to answer
_PING_S = 2.0  # for it to answer a ping
_LONG_S = 600.0  # for it to answer a statement without a limit


def connect(
    url: str,
    pool_size: int = 8,
    statement_timeout_s: float = 60,
    idle_s: float = 5,
    role: str = "",
) -> Engine:
    """Opens a pool of connections that act in this role (empty: as the user of the URL).

    A statement that takes longer than the timeout fails. A transaction that is idle for `idle_s`
    ends: a process that froze in it must not hold its locks. A server that does not answer within
    two seconds more is given up, and with it the connection (`BoundedConnection`); a connection
    that it closed meanwhile is noticed before it is used."""
    settings = {
        "statement_timeout": str(int(statement_timeout_s * 1000)),
        "idle_in_transaction_session_timeout": str(int(idle_s * 1000)),
        "timezone": "UTC",
    }
    if role:
        settings["role"] = role
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=min(_POOL_S, statement_timeout_s),
        pool_use_lifo=True,  # the last one used has its statements prepared, and needs no ping
        hide_parameters=True,  # they are payloads, and errors are logged
        connect_args=TCP_OPTIONS,
    )
    answer_s = statement_timeout_s + _GRACE_S
    event.listen(engine, "do_connect", _Opening(settings, answer_s).connect)
    event.listen(engine, "checkin", partial(_bound, answer_s))
    event.listen(engine, "checkout", partial(_ping, engine.dialect))
    event.listen(engine, "checkout", _lent)
    event.listen(engine, "checkin", _returned)
    event.listen(engine, "handle_error", lambda error: record.database_error())
    _POOLS.add(engine.pool)  # type: ignore[arg-type]
    return engine


class _Opening:
    """Opens the connections of a pool, with these settings."""

    def __init__(self, settings: Mapping[str, str], answer_s: float) -> None:
        self._settings, self._answer_s = settings, answer_s
        self._checked = False

    def connect(
        self, dialect: object, record: object, args: Any, options: Any
    ) -> BoundedConnection:
        """Opens one. Raises psycopg.OperationalError."""
        connect = partial(BoundedConnection.connect, *args, autocommit=True, **options)
        connection = connect()
        try:
            if not self._checked:
                pooler.check(connection, connect)
            _set(connection, self._settings)
            connection.autocommit = False
        except psycopg.Error as error:
            connection.close()
            raise psycopg.OperationalError(str(error)) from error
        self._checked = True
        connection.answer_s = self._answer_s
        return connection


def _set(connection: DriverConnection[Any], settings: Mapping[str, str]) -> None:
    """Sets settings of the session: a pooler passes on no startup parameter but its own."""
    connection.execute(_SET_ALL, [[*settings], [*settings.values()]])


def _bound(answer_s: float, connection: BoundedConnection | None, record: object) -> None:
    """Ends what `disable_statement_timeout` did; None: the connection was closed."""
    if connection is not None:
        connection.answer_s = answer_s


def connect_alone(url: str, settings: Mapping[str, str] = {}, **options: Any) -> BoundedConnection:
    """Opens a connection of its own, without transactions: for LISTEN, NOTIFY or one query. Raises
    psycopg.Error."""
    connection = BoundedConnection.connect(
        plain_url(url), autocommit=True, **TCP_OPTIONS, **options
    )
    if settings:
        _set(connection, settings)
    return connection


def check_sessions(url: str) -> None:
    """Raises SettingsError where a pooler loses what is set for a session. A database that can't be
    reached is asked by each pool again."""
    connect = partial(connect_alone, url)
    try:
        with connect() as connection:
            pooler.check(connection, connect)
    except pooler.SessionLost as error:
        raise SettingsError([f"MILLRACE_DATABASE_URL: {error}"]) from error
    except psycopg.Error:
        pass


def await_notices(connection: BoundedConnection, within_s: float, *files: int) -> list[Notify]:
    """Returns the notifications that come within so many seconds, or until a file is readable.

    psycopg's own wait wakes up ten times a second. After a silence the server is asked for an
    answer: one that is frozen would send nothing for ever. Raises psycopg.Error.
    """
    arrival = poll()
    for each in (connection.fileno(), *files):
        arrival.register(each, POLLIN)
    if not arrival.poll(within_s * 1000):
        connection.execute("SELECT 1")
    return list(connection.notifies(timeout=0))


_POOLS: "WeakSet[QueuePool]" = WeakSet()
"""Pools of this process, for `record_connections`."""
_SINCE, _UNTIL = "millrace.lent", "millrace.returned"
_TRUSTED_S = 0.2  # since a connection was returned: it isn't pinged, which costs a round trip


def _ping(dialect: Dialect, connection: Any, entry: Any, proxy: object) -> None:
    """Pings a connection that was idle for a while, or whose socket has something to read, as one
    has that the server closed; one that is dead is replaced, as are all of its age."""
    until_s = entry.info.get(_UNTIL)  # none where it is new
    if until_s is None:
        return
    try:
        if clock.monotonic() > until_s + _TRUSTED_S or _is_readable(connection.fileno()):
            answer_s, connection.answer_s = connection.answer_s, _PING_S
            dialect.do_ping(connection)
            connection.answer_s = answer_s
    except psycopg.Error as error:
        raise InvalidatePoolError() from error


def _is_readable(file: int) -> bool:
    poller = poll()
    poller.register(file, POLLIN)
    return bool(poller.poll(0))


def _lent(connection: object, entry: Any, proxy: object) -> None:
    entry.info[_SINCE] = clock.monotonic()


def _returned(connection: object, entry: Any) -> None:
    now_s = entry.info[_UNTIL] = clock.monotonic()
    if since_s := entry.info.pop(_SINCE, None):
        record.transaction(now_s - since_s)


def record_connections() -> None:
    """Records the numbers of connections in use and idle."""
    pools = list(_POOLS)
    used, idle = (pool.checkedout() for pool in pools), (pool.checkedin() for pool in pools)
    record.connections(sum(used), sum(idle))


def driver(tx: Tx) -> DriverConnection[tuple[Any, ...]]:
    """Returns psycopg's connection under this transaction."""
    connection: Any = tx.connection.driver_connection
    return connection  # type: ignore[no-any-return]


def cursor(tx: Tx) -> Cursor[tuple[Any, ...]]:
    """Opens a psycopg cursor in this transaction, for COPY and arrays."""
    return driver(tx).cursor()


def array_text(values: Iterable[object]) -> str:
    """Returns an array of numbers, ids or words as PostgreSQL writes it: the driver takes several
    times as long for the values."""
    listed = ",".join(map(str, values)).replace("None", "NULL")
    return f"{{{listed}}}"


_SET_ALL = """
    SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS s (name, value)
"""
_NOW = select(func.now())
_SET = select(func.set_config(bindparam("name"), bindparam("value"), true()))
_LOCK = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("name"), 0)))
_NOTIFY = select(func.pg_notify(bindparam("channel"), bindparam("payload")))


def now(tx: Tx) -> datetime:
    """Returns the time at which the transaction began, by the database's clock.

    What is deleted by its age is compared with this: other clocks may be wrong.
    """
    at: datetime = tx.scalars(_NOW).one()
    return at


def set_local(tx: Tx, name: str, value: str) -> None:
    """Sets one of the server's settings for the rest of the transaction."""
    tx.execute(_SET, {"name": name, "value": value})


def disable_statement_timeout(tx: Tx) -> None:
    """Disables the statement timeout of this transaction, whose work grows with the job."""
    set_local(tx, "statement_timeout", "0")
    tx.connection.driver_connection.answer_s = _LONG_S  # type: ignore[union-attr]


def lock(tx: Tx, name: str) -> None:
    """Locks a name until the transaction ends."""
    tx.execute(_LOCK, {"name": name})


def notify(tx: Tx, channel: str, payload: str = "") -> None:
    """Notifies those who listen on a channel, at commit."""
    tx.execute(_NOTIFY, {"channel": channel, "payload": payload})


def notify_work(tx: Tx) -> None:
    """Notifies keepers, at commit, that there is something to claim."""
    notify(tx, WORK_CHANNEL)


def notify_keys(tx: Tx, tenant: str) -> None:
    """Notifies api processes, at commit, that this tenant's keys, limits or terms changed."""
    notify(tx, KEYS_CHANNEL, tenant)


def plain_url(url: str) -> str:
    """Returns the URL as psycopg and psql spell it."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)
