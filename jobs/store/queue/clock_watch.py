"""Watch on the database's clock, by which leases end and workers are silent."""

from collections.abc import Callable

from sqlalchemy import extract, func, select

from jobs import clock
from jobs.store.db import Tx

_CLOCK = select(extract("epoch", func.clock_timestamp()))


class ClockWatch:
    """Compares the database's clock with a monotonic one.

    After a step forward all leases seem to have ended, and all workers to be silent.
    """

    def __init__(self, lease_s: float, monotonic: Callable[[], float] = clock.monotonic) -> None:
        self._lease_s, self._monotonic = lease_s, monotonic
        self._offset_s: float | None = None
        self._steady_at_s = 0.0

    def is_steady(self, tx: Tx) -> bool:
        """Returns False for a lease's time after the clock was seen to step."""
        now_s = self._monotonic()
        offset_s = float(tx.scalars(_CLOCK).one()) - now_s
        if self._offset_s is not None and abs(offset_s - self._offset_s) > self._lease_s / 3:
            self._steady_at_s = now_s + self._lease_s
        self._offset_s = offset_s
        return now_s >= self._steady_at_s
