"""Watch on the database and its clock, by which leases end and workers are silent."""

from collections.abc import Callable

from sqlalchemy import extract, func, select

from jobs import clock
from jobs.store.db import Tx

_CLOCK = select(extract("epoch", func.clock_timestamp()))


class ClockWatch:
    """Compares the database's clock with a monotonic one, at each look.

    After a step forward all leases seem to have ended, and all workers to be silent. So they do
    after a time without a look: the database was away, stood still or failed over, or the keeper
    is new or was suspended. Workers have a lease's time to renew then.
    """

    def __init__(
        self, lease_s: float, interval_s: float, monotonic: Callable[[], float] = clock.monotonic
    ) -> None:
        """interval_s: longest time between two looks while all is well."""
        self._lease_s, self._monotonic = lease_s, monotonic
        self._longest_gap_s = interval_s + lease_s / 3
        self._looked: tuple[float, float] | None = None  # monotonic time, offset of the database's
        self._steady_at_s = 0.0

    def is_steady(self, tx: Tx) -> bool:
        """Returns False for a lease's time after a step, or after a time without a look."""
        return self.observe(float(tx.scalars(_CLOCK).one()))

    def observe(self, database_s: float) -> bool:
        """Looks at the database's clock, epoch s, which was read just now; see `is_steady`."""
        now_s = self._monotonic()
        offset_s = database_s - now_s
        if self._looked is None or self._is_broken(now_s, offset_s, *self._looked):
            self._steady_at_s = now_s + self._lease_s
        self._looked = now_s, offset_s
        return now_s >= self._steady_at_s

    def _is_broken(self, now_s: float, offset_s: float, then_s: float, before_s: float) -> bool:
        stepped = abs(offset_s - before_s) > self._lease_s / 3
        return stepped or now_s - then_s > self._longest_gap_s
