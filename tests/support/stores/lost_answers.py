"""Commits whose answers never come: each one of an operation in turn, made or not."""

import threading
from collections.abc import Iterator

from sqlalchemy import Connection, Engine, event

_MOST = 100


class LostAnswers:
    """Pools of connections that lose the answer to one commit, and with it the connection."""

    def __init__(self, *databases: Engine) -> None:
        self._lock = threading.Lock()
        self._left: int | None = None  # commits before the one that is lost
        self._is_made = True
        for database in databases:
            self.watch(database)

    def watch(self, database: Engine) -> Engine:
        event.listen(database, "commit", self._commits)
        return database

    def each(self) -> Iterator[str]:
        """Yields once for each commit that is made until the next step of the iteration, with the
        answer to that one lost; first as if the server had committed, then as if it hadn't."""
        for self._is_made in (True, False):
            for n in range(_MOST):
                self._left = n
                yield f"{'made' if self._is_made else 'not made'}, {n}"
                if self._left is not None:
                    break
            else:
                raise AssertionError(f"there are more than {_MOST} commits")
            assert n, "there was no commit"
            self._left = None

    def _commits(self, connection: Connection) -> None:
        with self._lock:
            if self._left is None:
                return
            self._left -= 1
            if self._left >= 0:
                return
            self._left = None
        driver = connection.connection.driver_connection
        assert driver is not None
        if self._is_made:
            driver.commit()
        else:  # the server lets go of its locks before the client, told nothing, asks again
            driver.rollback()
        driver.pgconn.finish()
