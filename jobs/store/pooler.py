"""Detection of a pooler that lends servers by transaction, as PgBouncer does with
`pool_mode = transaction`.

The role and the limits of a session would hold in transactions of others, and not in its own.
"""

from collections.abc import Callable
from typing import Any

from psycopg import Connection, OperationalError

REFUSAL = (
    "what is between us and PostgreSQL lends another server for each transaction, which loses the "
    "role, limits and locks of a session: let it lend by session (PgBouncer: pool_mode = session), "
    "or connect to PostgreSQL directly"
)
_ROUNDS = 10  # others may take a server in between
_SERVER = "SELECT pg_backend_pid(), pg_postmaster_start_time()"


class SessionLost(OperationalError):
    """A pooler that keeps no session."""


def check(connection: Connection[Any], connect: Callable[[], Connection[Any]]) -> None:
    """Raises SessionLost where there is such a pooler, and other errors where that can't be told.

    connection: in autocommit; connect: opens another one to the same address. A pooler's process
    isn't the server's. Of one by transaction two connections show the same server, or one shows
    two; of one by session neither, whatever other clients do.
    """
    pid, _ = server = _server_of(connection)
    if pid == connection.info.backend_pid:
        return
    with connect() as other:
        if not all(_is_kept(connection, server, other) for _ in range(_ROUNDS)):
            raise SessionLost(REFUSAL)


def _is_kept(connection: Connection[Any], server: tuple[Any, ...], other: Connection[Any]) -> bool:
    if {_server_of(connection), _server_of(connection)} != {server}:  # lent in turn
        return False
    with other.transaction():  # lent what was returned last
        return _server_of(other) != server and _server_of(connection) == server


def _server_of(connection: Connection[Any]) -> tuple[Any, ...]:
    # Not prepared: the next server may not know the statement.
    pid_and_start: tuple[Any, ...] = connection.execute(_SERVER, prepare=False).fetchall()[0]
    return pid_and_start
