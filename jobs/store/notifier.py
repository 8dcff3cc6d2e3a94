"""NOTIFY after commits: keepers send nudges for work that was stored.

A transaction with a NOTIFY takes a lock of the whole server at its commit, so that no two of them
share a write to the disk. What this process sends is sent apart, on a connection of its own, once
for all commits of the moment. What a crash loses is found by the timers of keepers and workers.
"""

import logging
import threading

import psycopg

from jobs.store import db

_log = logging.getLogger(__name__)
#: Nothing is written but the notification, and losing it costs a timer's length.
_SETTINGS = {"synchronous_commit": "off"}
_TRIES = 2  # the first may find that the server closed an idle connection


class WorkNotifier:
    """Notifies keepers that there is something to claim. Any thread may call `notify`.

    url: address of the database.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None
        self._due = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()  # of the start and the end of the thread

    def notify(self) -> None:
        """Sends a NOTIFY soon, one for all calls since the one before. Call it after the commit."""
        self._due.set()
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """Sends what is due, and ends the connection."""
        with self._lock:
            self._closed = True
        self._due.set()
        if self._thread:
            self._thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._due.wait()
            closed = self._closed
            self._due.clear()
            self._send()
            if closed:
                break
        self._disconnect()

    def _send(self) -> None:
        for attempt in range(_TRIES):
            try:
                if self._connection is None:
                    self._connection = db.connect_alone(self._url, _SETTINGS)
                self._connection.execute(f"NOTIFY {db.WORK_CHANNEL}")
            except psycopg.Error as error:
                self._disconnect()
                if attempt + 1 == _TRIES:
                    _log.warning("can't notify keepers; their timers find the work: %s", error)
            else:
                return

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None
