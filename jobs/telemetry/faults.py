"""Faults of work that is begun again after each: the pauses between, and since when it has failed.

Work that goes on until its process stops takes along, where it ends by a fault, whatever waits for
it. An owner begins it again, after a pause that grows; where it has failed for long, the process is
to be taken out of service, and at last to end, for its own owner to start another.
"""

import logging

from jobs import clock

UNREADY_S, DEAD_S = 10.0, 60.0
"""Times of failing from which on a process isn't ready, and is to end."""
STEADY_S = 5.0
"""Time without a fault that has overcome the last one, unless an owner says otherwise."""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 5.0

_log = logging.getLogger(__name__)


class Faults:
    """Faults of one work. name: for logs; steady_s: time for which the work goes on, from when it
    began again, to have overcome them."""

    def __init__(self, name: str, steady_s: float = STEADY_S) -> None:
        self.name, self._steady_s = name, steady_s
        self.latest = ""  #: its class and words: an exception would keep all that its frames hold
        self._since_s = self._again_s = 0.0  # the first of those in a row; end of the pause
        self._pause_s = _FIRST_PAUSE_S

    @property
    def failing_s(self) -> float:
        """Seconds since the first of the faults in a row; 0 once the work goes on."""
        return 0.0 if self._is_steady() else clock.monotonic() - self._since_s

    @property
    def pause_left_s(self) -> float:
        """Seconds until the work is to begin again."""
        return max(0.0, self._again_s - clock.monotonic())

    def add(self, error: Exception) -> float:
        """Logs a fault. Returns seconds until the work is to begin again."""
        now_s = clock.monotonic()
        if self._is_steady():
            self._since_s, self._pause_s = now_s, _FIRST_PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(_MAX_PAUSE_S, 2 * self._pause_s)
        self.latest, self._again_s = f"{type(error).__name__} ({error})", now_s + pause_s
        _log.error("%s failed; it begins again in %.1f s", self.name, pause_s, exc_info=error)
        return pause_s

    def overcome(self) -> None:
        """Forgets all faults: the work has succeeded."""
        self.latest = ""

    def _is_steady(self) -> bool:
        return not self.latest or clock.monotonic() - self._again_s >= self._steady_s
