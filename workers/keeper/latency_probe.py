"""How long the smallest thing takes, told while it is still waited for."""

import logging
import threading
from collections.abc import Callable

from jobs import clock

_log = logging.getLogger(__name__)
_EVERY_S = 1.0


class LatencyProbe:
    """act: done again and again on a thread of its own; what it raises is a failure."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self._name, self._act = name, act
        self._took_s = 0.0
        self._since_s: float | None = None  # when the try began that has not succeeded yet

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self.run_once()
            stopping.wait(_EVERY_S)

    def run_once(self) -> None:
        """One try; one that fails goes on being waited for by the next."""
        since_s = clock.monotonic()
        self._since_s = self._since_s or since_s
        try:
            self._act()
        except Exception as error:  # whatever it is: it is not there
            _log.debug("%s: %s", self._name, error)
            return
        self._took_s, self._since_s = clock.monotonic() - since_s, None

    def seconds(self) -> float:
        """Of the last try or, where that is more, of the one that has not succeeded so far."""
        since_s = self._since_s
        waited_s = clock.monotonic() - since_s if since_s is not None else 0.0
        return max(self._took_s, waited_s)
