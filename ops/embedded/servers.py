"""Embedded PostgreSQL and Redis under one lock."""

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

from jobs import clock
from ops.embedded.ballast import Ballast
from ops.embedded.errors import EmbeddedError
from ops.embedded.layout import Layout
from ops.embedded.lock import HomeLock
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.redis import EmbeddedRedis
from ops.embedded.server import Server
from ops.processes import log_rotation
from ops.processes.children import Started, describe_exit

_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 15.0
_STEADY_S = 5.0  # a server that has lived so long starts again at once
_LOOK_S = 10.0  # between two looks at the ballast and the logs, and for stuck servers

log = logging.getLogger("millrace.embedded")


@dataclass(slots=True)
class _Backoff:
    started_s: float = -inf  #: monotonic, as is the next
    retry_at_s: float = -inf
    pause_s: float = _FIRST_BACKOFF_S  #: after the next start

    def count(self) -> None:
        """Counts a start: another is due once the pause is over."""
        self.started_s = clock.monotonic()
        self.retry_at_s = self.started_s + self.pause_s
        self.pause_s = min(2 * self.pause_s, _MAX_BACKOFF_S)

    def forget(self) -> None:
        """Forgets starts of a server that runs, once it has done so for long."""
        if clock.monotonic() >= self.started_s + _STEADY_S:
            self.retry_at_s, self.pause_s = -inf, _FIRST_BACKOFF_S


class EmbeddedServers:
    """Private PostgreSQL and Redis of a home, or one of them; for the main thread."""

    def __init__(self, home: Path, *, postgres: bool = True, redis: bool = True) -> None:
        self.home = Layout.of(home).home
        self.lock = HomeLock(self.home)
        self.postgres = EmbeddedPostgres(self.home)
        self.redis = EmbeddedRedis(self.home)
        chosen = ((self.postgres, postgres), (self.redis, redis))
        self._servers = [server for server, use in chosen if use]
        self._ballast = Ballast(self.home)
        self._backoffs = {server.name: _Backoff() for server in self._servers}
        self._look_at_s = 0.0

    def start(self) -> None:
        """Locks the home and starts its servers. Raises EmbeddedError, and then holds nothing."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Locks the home and starts its servers, all at once; `await_ready` follows. Raises
        EmbeddedError, and then holds nothing."""
        if not self._servers:
            return
        self.lock.acquire()
        with self._stopped_on_failure():
            self._ballast.release()
            for server in self._servers:
                self._with_ballast(server, server.launch)

    def await_ready(self) -> None:
        """Returns once all servers answer. Raises EmbeddedError, and then holds nothing."""
        with self._stopped_on_failure():
            for server in self._servers:
                self._with_ballast(server, server.await_ready)
            if self._servers:
                self._ballast.keep()

    @contextmanager
    def _stopped_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def processes(self) -> list[Started]:
        """Returns the servers' processes that run."""
        return [server.process for server in self._servers if server.process and server.alive()]

    def poll(self, kept_down: Collection[str] = ()) -> None:
        """Restarts servers that have ended or are stuck, except these; where one can't start, again
        after a backoff."""
        now_s = clock.monotonic()
        looks = now_s >= self._look_at_s
        for server in self._servers:
            try:
                if server.name not in kept_down:
                    self._look_after(server, looks)
                if looks:
                    log_rotation.bound(server.log)
            except OSError as error:
                log.warning("the embedded %s can't be looked after: %s", server.name, error)
        if self._servers and looks:
            self._look_at_s = now_s + _LOOK_S
            self._ballast.keep()

    def _look_after(self, server: Server, looks: bool) -> None:
        if looks and server.process and server.is_stuck():
            log.error("the embedded %s lacks processes that it needs: it is killed", server.name)
            server.process.kill()
            server.process.wait()
        backoff = self._backoffs[server.name]
        if server.alive():
            backoff.forget()
        elif clock.monotonic() >= backoff.retry_at_s:
            self._restart(server, backoff)

    def _restart(self, server: Server, backoff: _Backoff) -> None:
        code = server.process.returncode if server.process else None
        how = "doesn't run" if code is None else f"has ended with {describe_exit(code)}"
        log.warning("the embedded %s %s; it starts again", server.name, how)
        try:
            self._start(server)
        except EmbeddedError as error:
            log.error("%s\nIt is tried again in %g s.", error.message, backoff.pause_s)
        finally:
            backoff.count()

    def _start(self, server: Server) -> None:
        """Starts a server; on a full disk in the space of the ballast. Raises EmbeddedError."""
        self._ballast.release()
        self._with_ballast(server, server.start)

    def _with_ballast(self, server: Server, act: Callable[[], None]) -> None:
        """Takes a step of a server's start; where it fails, the server is started again in the
        space of the ballast. Raises EmbeddedError."""
        try:
            act()
        except EmbeddedError:
            if not self._ballast.release():
                raise
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
