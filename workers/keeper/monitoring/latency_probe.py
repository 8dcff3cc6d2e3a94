"""Latency of the smallest operation of a dependency, measured while it is still waited for."""

import logging
from collections.abc import Callable

from prometheus_client import Gauge

from jobs import clock
from workers.service import Service

_log = logging.getLogger(__name__)
_INTERVAL_S = 3.0


class LatencyProbe(Service):
    """Keeper service: performs an operation again and again; any exception is a failure."""

    def __init__(self, target: str, act: Callable[[], object], gauge: Gauge | None = None) -> None:
        super().__init__(f"probe {target}", _INTERVAL_S)
        self._act = act
        self._took_s = 0.0
        self._since_s: float | None = None  # start of the first try that has not succeeded yet
        if gauge:
            gauge.set_function(self.seconds)

    def run_once(self) -> int:
        """Tries once; the wait of a failed try goes on in the next."""
        since_s = clock.monotonic()
        self._since_s = self._since_s or since_s
        try:
            self._act()
        except Exception as error:
            _log.debug("%s: %s", self.name, error)
        else:
            self._took_s, self._since_s = clock.monotonic() - since_s, None
        return 0

    def seconds(self) -> float:
        """Duration of the last success or, where that is more, the wait for the next one."""
        since_s = self._since_s
        waited_s = clock.monotonic() - since_s if since_s is not None else 0.0
        return max(self._took_s, waited_s)
