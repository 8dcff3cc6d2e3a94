"""Probe of the health routes of all apis while faults strike them."""

import threading
from collections import defaultdict

import httpx

from jobs import clock
from ops.bench.chaos.clients.client import Ledger
from ops.bench.chaos.fleet import Fleet, look
from ops.processes.children import Child

_EVERY_S, _TIMEOUT_S = 0.5, 20.0
ROUTES = ("livez", "readyz")


class HealthProbe:
    """Threads that ask each api for its health, past the proxies; one that was stopped, drained
    or ended meanwhile doesn't count.

    took_s: times of the answers by route; one without an answer counts with the time limit, and is
    in the ledger."""

    def __init__(self, fleet: Fleet, ledger: Ledger) -> None:
        self.took_s = defaultdict[str, list[float]](list)
        self._fleet, self._ledger, self._over = fleet, ledger, threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=each, daemon=True)
            for each in zip(fleet.apis, fleet.urls, strict=True)
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

    def _run(self, api: Child, url: str) -> None:
        while not self._over.wait(_EVERY_S):
            for route in ROUTES:
                before, error = self._running(api), ""
                since_s = clock.monotonic()
                try:
                    httpx.get(f"{url}/{route}", timeout=_TIMEOUT_S)
                except httpx.ConnectError:  # it still starts
                    continue
                except httpx.TransportError as failed:
                    error = repr(failed)
                took_s = clock.monotonic() - since_s
                if before and before == self._running(api):
                    self.took_s[route].append(_TIMEOUT_S if error else took_s)
                    if error:
                        about = {"api": api.name, "route": route, "took_s": took_s}
                        self._ledger.write("health", **about, error=error)

    def _running(self, api: Child) -> tuple[int, int, int] | None:
        """Returns the process where it runs: its pid and start time, and how often it stood."""
        process = api.process
        found = look(process.pid) if process else None
        drains = api.name in self._fleet.drained
        if not process or not found or found.state == "T" or drains:
            return None
        return process.pid, found.born, self._fleet.stops[api.name]
