"""Client of the Redis that holds the call lanes: redis-py's, which is timed and sends scripts past
its pool."""

from collections import deque
from select import POLLIN, poll
from typing import Any

import hiredis
from redis import Redis, RedisError, ResponseError, SSLConnection
from redis.exceptions import NoScriptError

from jobs import clock
from jobs.telemetry.metrics import record

READONLY = "READONLY"
"""Word in the error of a command that writes, or of its script, where the server is a replica."""


class LanesClient(Redis):
    """Counts and times commands; none of them blocks (`wait_for_wakeup` uses a connection).

    Scripts have connections of their own: redis-py's pool and retries take four times the CPU of
    the rest of a script.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._by_tls = issubclass(self.connection_pool.connection_class, SSLConnection)
        self._spare = deque[_Held]()  # connections that nobody uses

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Executes a command, and records its time or its error."""
        since_s = clock.monotonic()
        try:
            if args[0] == "EVALSHA" and not self._by_tls:
                result = self._run_script(args)
            else:
                result = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except NoScriptError:  # it is sent at once
            raise
        except RedisError:
            record.redis_error()
            raise
        record.redis_answered(clock.monotonic() - since_s)
        return result

    def close(self) -> None:
        """Closes all connections."""
        while self._spare:
            self._spare.pop().connection.disconnect()
        super().close()

    def _run_script(self, command: tuple[Any, ...]) -> Any:
        held = self._spare.pop() if self._spare else _Held(self.connection_pool.make_connection())
        try:
            return held.run(command)
        finally:
            self._spare.append(held)


class _Held:
    """Connection that one thread uses at a time."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._events: poll | None = None  # of its socket; None: not connected

    def run(self, command: tuple[Any, ...]) -> Any:
        """Sends a command and returns its reply. Raises RedisError."""
        if not self._events or self._events.poll(0):  # Redis ended it: nothing else can be read now
            self._connect()
        try:
            packed = hiredis.pack_command(command)
            self.connection.send_packed_command([packed], check_health=False)
            return self.connection.read_response()
        except ResponseError as error:
            if READONLY in str(error):
                self._events = None
            raise
        except BaseException:
            self._events = None
            raise

    def _connect(self) -> None:
        self._events = None
        self.connection.disconnect()
        self.connection.connect()
        events = poll()
        events.register(self.connection._sock, POLLIN)
        self._events = events
