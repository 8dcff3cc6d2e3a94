"""Embedded PostgreSQL and Redis under one lock."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.embedded.layout import Layout
from ops.embedded.lock import HomeLock
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.redis import EmbeddedRedis
from ops.processes import log_rotation

log = logging.getLogger("millrace.embedded")


class EmbeddedServers:
    """Private PostgreSQL and Redis of a home, or one of them; for the main thread."""

    def __init__(self, home: Path, *, postgres: bool = True, redis: bool = True) -> None:
        self.home = Layout.of(home).home
        self.lock = HomeLock(self.home)
        self.postgres = EmbeddedPostgres(self.home)
        self.redis = EmbeddedRedis(self.home)
        chosen = ((self.postgres, postgres), (self.redis, redis))
        self._servers = [server for server, use in chosen if use]

    def start(self) -> None:
        """Locks the home and starts its servers. Raises EmbeddedError, and then holds nothing."""
        if not self._servers:
            return
        self.lock.acquire()
        try:
            for server in self._servers:
                server.start()
        except BaseException:
            self.stop()
            raise

    def poll(self) -> None:
        """Restarts servers that have ended."""
        for server in self._servers:
            log_rotation.bound(server.log)
            if not server.alive():
                log.warning("the embedded %s has ended; it starts again", server.name)
                server.start()

    def stop(self) -> None:
        """Stops the servers and releases the home."""
        for server in reversed(self._servers):
            server.stop()
        self.lock.release()

    @contextmanager
    def running(self) -> Iterator["EmbeddedServers"]:
        """Runs the servers until it is left."""
        self.start()
        try:
            yield self
        finally:
            self.stop()
