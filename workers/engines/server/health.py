"""Health of an inference server, by its route on loopback."""

import ssl
import threading
from collections.abc import Callable

from jobs import clock
from workers.http_client.client import Client, NoResponse, TooLarge

_EVERY_S = 2.0
_MOST_WAIT_S = 20.0  # for an answer: a busy one takes its time
_MOST_BYTES = 1 << 20


class HealthCheck:
    """Asks a server if it is healthy."""

    def __init__(self, port: int, path: str) -> None:
        self._url = f"http://127.0.0.1:{port}{path}"
        self._client = Client(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def passes(self, timeout_s: float) -> bool:
        """Returns True if the server answers 200 in time."""
        try:
            response = self._client.send(
                "GET", self._url, [], timeout_s=timeout_s, max_bytes=_MOST_BYTES
            )
        except (NoResponse, TooLarge):
            return False
        return response.status == 200

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()


class HealthWatch:
    """Checks a server's health from time to time, on a thread of its own.

    failed: called with the reason where it has not been healthy for `limit_s`.
    """

    def __init__(self, check: HealthCheck, limit_s: float, failed: Callable[[str], None]) -> None:
        self._check, self._limit_s, self._failed = check, limit_s, failed
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, after the check that runs."""
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        wait_s = min(_MOST_WAIT_S, self._limit_s / 2)
        healthy_s = clock.monotonic()
        while not self._closed.wait(min(_EVERY_S, wait_s)):
            if self._check.passes(wait_s):
                healthy_s = clock.monotonic()
            elif clock.monotonic() - healthy_s >= self._limit_s and not self._closed.is_set():
                self._failed(f"failed its health check for {self._limit_s:g} s and was ended")
                return
