"""Leadership among keepers: an advisory lock, held by a connection for as long as it lives."""

import logging

import psycopg

from jobs.store import db

_log = logging.getLogger(__name__)
_TRY = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"


class Leadership:
    """Lock under a name, for one of all processes. url: address of the database."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name
        self._connection: psycopg.Connection | None = None
        self._held = False

    def hold(self) -> bool:
        """Returns True if this process has the lock, which it takes where nobody has it."""
        try:
            if self._connection is None:
                self._connection = db.connect_alone(self._url)
            if self._held:
                self._connection.execute(
                    "SELECT 1"
                )  # raises where the session, and the lock, ended
            else:
                [self._held] = self._connection.execute(_TRY, [self._name]).fetchone() or [False]
        except psycopg.Error as error:
            _log.warning("can't tell who leads %s: %s", self._name, error)
            self.release()
        return self._held

    def release(self) -> None:
        """Gives the lock back."""
        if self._connection:
            self._connection.close()
        self._connection, self._held = None, False
