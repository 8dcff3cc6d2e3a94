"""Both servers, under one lock."""

import logging
from pathlib import Path

from ops.embedded.layout import Layout
from ops.embedded.lock import HomeLock
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.redis import EmbeddedRedis
from ops.processes import log_rotation

log = logging.getLogger("millrace.embedded")


class EmbeddedServers:
    """The private PostgreSQL and Redis of a home, or one of them. Every method belongs to the
    main thread."""

    def __init__(self, home: Path, *, postgres: bool = True, redis: bool = True) -> None:
        self.home = Layout.of(home).home
        self.lock = HomeLock(self.home)
        self.postgres = EmbeddedPostgres(self.home)
        self.redis = EmbeddedRedis(self.home)
        wanted = ((self.postgres, postgres), (self.redis, redis))
        self._servers = [server for server, use in wanted if use]

    def start(self) -> None:
        """Take the home, start what is wanted. Raises EmbeddedError, and then holds nothing."""
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
        """Start again what has ended."""
        for server in self._servers:
            log_rotation.bound(server.log)
            if not server.alive():
                log.warning("the embedded %s has ended; it starts again", server.name)
                server.start()

    def stop(self) -> None:
        for server in reversed(self._servers):
            server.stop()
        self.lock.release()

    def __enter__(self) -> "EmbeddedServers":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
