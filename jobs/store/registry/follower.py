"""Follower of the registry: reads it at each notification and every few seconds."""

import logging
import os
import threading
from collections.abc import Callable

import psycopg
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs.models.registered import Registered
from jobs.store import db
from jobs.store.connections.bounded import BoundedConnection
from jobs.store.db import Tx
from jobs.store.registry import snapshot
from jobs.store.tenancy import EVERYBODY, acting

_log = logging.getLogger(__name__)

LOOK_S = 3.0
"""Longest time between two looks; a notification brings one at once."""

_FIRST_S = 2.0  # that a process waits for the first look
_AGAIN_S = 0.5  # after an error
_ERRORS = (SQLAlchemyError, psycopg.Error, OSError)

Adopt = Callable[[Registered], object]
Read = Callable[[Tx], Registered]


def look(database: Database, adopt: Adopt, read: Read = snapshot.read) -> None:
    """Reads the registry once, for `adopt`. Raises database errors."""
    with acting(database, EVERYBODY) as tx:
        found = read(tx)
    adopt(found)


class RegistryFollower:
    """Thread of one process, with a connection that listens.

    database: of the process; url: its address. adopt: called with what the registry holds, on this
    thread. read: what is read of it. Where it can't be read, what was read before stays in force.
    """

    def __init__(
        self, database: Database, url: str, adopt: Adopt, read: Read = snapshot.read
    ) -> None:
        self._database, self._url, self._adopt, self._read = database, url, adopt, read
        self._stopping, self._looked = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry", daemon=True)
        self._warned = False

    def start(self) -> None:
        """Starts following. Returns after the first look or, where that takes long, before."""
        self._woken, self._wake = os.pipe()
        self._thread.start()
        self._looked.wait(_FIRST_S)

    def stop(self) -> None:
        """Ends the thread and its connection."""
        self._stopping.set()
        os.write(self._wake, b".")
        self._thread.join()
        os.close(self._wake)
        os.close(self._woken)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with db.connect_alone(self._url) as connection:
                    connection.execute(f"LISTEN {db.MODELS_CHANNEL}")
                    self._follow(connection)
            except _ERRORS as error:
                if not self._warned:
                    _log.warning("can't read the registry, what it had is served: %s", error)
                self._warned = True
                self._looked.set()
                self._stopping.wait(_AGAIN_S)

    def _follow(self, connection: BoundedConnection) -> None:
        """Looks until `stop`, once for all notifications of the moment. Raises _ERRORS."""
        while not self._stopping.is_set():
            look(self._database, self._adopt, self._read)
            self._warned = False
            self._looked.set()
            db.await_notices(connection, LOOK_S, self._woken)
