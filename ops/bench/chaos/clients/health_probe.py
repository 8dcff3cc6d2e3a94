"""Probe of the health routes of all apis while faults strike them.

The requests are made and timed by processes of their own, as an orchestrator's are: this one also
runs clients and proxies, whose threads would delay them.
"""

import http.client
import threading
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from jobs import clock
from ops.bench.chaos.clients.client import Ledger
from ops.bench.chaos.fleet import Fleet, look
from ops.processes.children import Child

_EVERY_S, _TIMEOUT_S = 0.5, 20.0
ROUTES = ("livez", "readyz")
_LATE_S = {"livez": 0.2, "readyz": 2.0}  # later ones are in the ledger


class HealthProbe:
    """Threads that ask each api for its health, past the proxies; one that was stopped, drained
    or ended meanwhile doesn't count.

    took_s: times of the answers by route; one without an answer counts with the time limit. Those
    and late ones are in the ledger."""

    def __init__(self, fleet: Fleet, ledger: Ledger) -> None:
        self.took_s = defaultdict[str, list[float]](list)
        self._fleet, self._ledger, self._over = fleet, ledger, threading.Event()
        self._pool = ProcessPoolExecutor(len(fleet.apis), get_context("spawn"))
        self._threads = [
            threading.Thread(target=self._run, args=each, daemon=True)
            for each in zip(fleet.apis, fleet.ports, strict=True)
        ]

    def start(self) -> None:
        """Starts to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns once nothing is asked any more."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._pool.shutdown()

    def _run(self, api: Child, port: int) -> None:
        while not self._over.wait(_EVERY_S):
            for route in ROUTES:
                before = self._running(api)
                asked = self._pool.submit(_ask, port, route).result()
                if asked and before and before == self._running(api):
                    took_s, error = asked
                    self.took_s[route].append(_TIMEOUT_S if error else took_s)
                    if error or took_s > _LATE_S[route]:
                        about = {"api": api.name, "route": route, "took_s": round(took_s, 3)}
                        self._ledger.write("health", **about, error=error)

    def _running(self, api: Child) -> tuple[int, int, int] | None:
        """Returns the process where it runs: its pid and start time, and how often it stood."""
        process = api.process
        found = look(process.pid) if process else None
        drains = api.name in self._fleet.drained
        if not process or not found or found.state == "T" or drains:
            return None
        return process.pid, found.born, self._fleet.stops[api.name]


def _ask(port: int, route: str) -> tuple[float, str] | None:
    """Returns the time of an answer and its error; None: nobody listens, since the api starts."""
    since_s = clock.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", f"/{route}")
        connection.getresponse().read()
        error = ""
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException) as failed:
        error = repr(failed)
    finally:
        connection.close()
    return clock.monotonic() - since_s, error
