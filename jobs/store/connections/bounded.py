"""Connection that waits for its server no longer than a deadline, and less where that is silent."""

from collections.abc import Generator
from contextlib import suppress
from typing import Any, Self, TypeVar

from psycopg import Connection, OperationalError, errors
from psycopg.waiting import READY_NONE

from jobs import clock
from jobs.store.connections import hosts

T = TypeVar("T")

_PATIENCE_S = 2.0  # for an answer, until the host is asked for another connection
_SILENT = "answers neither a statement nor a new connection"


class BoundedConnection(Connection[Any]):
    """Connection that is closed where the server has not answered a statement in time.

    A server that is frozen, or whose disk hangs, acknowledges every packet: neither keepalives nor
    tcp_user_timeout notice it, and its own statement_timeout doesn't run. One that works on a long
    statement takes new connections meanwhile; one that is frozen takes none.
    """

    answer_s = _PATIENCE_S + hosts.CONNECT_S
    """Longest wait for each statement from now on, or each part of a COPY; at least _PATIENCE_S."""

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:
        """Opens one; of several hosts the one that took the last is asked first. Raises
        psycopg.OperationalError."""
        connection = super().connect("", **hosts.in_turn(conninfo, options))
        hosts.prefer(connection.info)
        return connection

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Waits for the server. Raises OperationalError."""
        if timeout is not None:  # of a wait for notifications, which may pass without one
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, _PATIENCE_S)
        except errors._WaitTimeout:
            return self._wait_on(_resumed(gen), interval)

    def _wait_on(self, gen: Any, interval: float) -> Any:
        until_s = clock.monotonic() + self.answer_s - _PATIENCE_S
        while (left_s := until_s - clock.monotonic()) > hosts.CONNECT_S:
            if not hosts.answers(self.info):  # looks once more: it may have answered meanwhile
                return self._wait_last(gen, interval, 0.0, _SILENT)
            with suppress(errors._WaitTimeout):
                return super().wait(gen, interval, _PATIENCE_S)
        late = f"has not answered for {self.answer_s:g} s"
        return self._wait_last(gen, interval, max(0.0, left_s), late)

    def _wait_last(self, gen: Any, interval: float, left_s: float, otherwise: str) -> Any:
        try:
            return super().wait(gen, interval, left_s)
        except errors._WaitTimeout as error:
            hosts.avoid(self.info)
            self.pgconn.finish()
            raise OperationalError(f"PostgreSQL {otherwise}; the connection was closed") from error


def _resumed(gen: Generator[int, int, T]) -> Generator[int, int, T]:
    """Goes on with a generator that stands where a wait ended."""
    ready: int = READY_NONE
    try:
        while True:
            ready = (yield gen.send(ready)) or READY_NONE
    except StopIteration as end:
        result: T = end.value
        return result
