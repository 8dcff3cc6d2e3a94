"""Starts rounds of claims: at a nudge, and by a timer where nudges don't come."""

import logging
import threading
from collections.abc import Callable, Mapping
from math import inf

from sqlalchemy import Engine as Database

from jobs import clock
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.queue import backlog
from workers.device.claim_capacity import CLAIMS_IN_FLIGHT
from workers.device.host import ClaimHost

_FIRST_S = 0.1  # pause after work that no nudge brought; doubled at each look that starts none
_QUIET_S = 1.0  # without a nudge, before a look; and the longest pause while nudges are missed
_LONGEST_S = 3.0  # pause while nudges come, or there is no work

_log = logging.getLogger(__name__)


class ClaimTimer:
    """Looks for slices that a worker has room for, and starts rounds of claims for them, while the
    broker is away, refuses nudges or has lost them.

    work: one round, see `SliceRunner.work`; start: runs a function on a thread of the worker."""

    def __init__(
        self,
        database: Database,
        hosts: Mapping[str, ClaimHost],
        work: Callable[[], bool],
        start: Callable[[Callable[[], None]], object],
    ) -> None:
        self._database, self._hosts = database, hosts
        self._work, self._start = work, start
        self._nudged_s, self._nudges_missed = -inf, False
        self.pause_s = _QUIET_S  #: until the next look
        self._woken = threading.Event()
        self._stopping = False

    def nudge(self) -> None:
        """Works until there is nothing to claim, as a nudge asks."""
        self._nudged_s, self._nudges_missed = clock.monotonic(), False
        self._work_until_empty()

    def run(self) -> None:
        """Looks again and again, until `stop`."""
        while not self._stopping:
            self._woken.wait(self.pause_s)
            self._woken.clear()
            try:
                if not self._stopping:
                    self.look()
            except Exception:
                _log.exception("a look for slices failed; the next one is in %g s", self.pause_s)

    def look(self) -> None:
        """Starts rounds where slices are ready, unless a nudge came in the last second."""
        if clock.monotonic() < self._nudged_s + _QUIET_S:
            self.pause_s = _QUIET_S
            return
        longest_s = _QUIET_S if self._nudges_missed else _LONGEST_S
        self.pause_s = min(2 * self.pause_s, longest_s)
        self.start()

    def start(self) -> None:
        """Starts rounds where slices are ready, whatever nudges say."""
        for _ in range(self._ready_slices()):
            self._start(self._work_unnudged)

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping = True
        self._woken.set()

    def _ready_slices(self) -> int:
        """Counts slices that could be claimed now, as many as there may be claims of a model."""
        models = [host.model for host in list(self._hosts.values()) if host.capacity.room()]
        if not models:
            return 0
        try:
            with self._database.begin() as tx:
                return sum(backlog.claimable(tx, models, CLAIMS_IN_FLIGHT).values())
        except CONNECTION_ERRORS as error:
            _log.warning("can't look for slices: %s", error)
            return 0

    def _work_unnudged(self) -> None:
        """Works until there is nothing to claim; where there was something, looks again soon."""
        if self._work_until_empty():
            self._nudges_missed, self.pause_s = True, _FIRST_S
            self._woken.set()

    def _work_until_empty(self) -> bool:
        """Returns True if there was anything to claim."""
        worked = False
        try:
            while self._work():
                worked = True
        except CONNECTION_ERRORS as error:
            _log.warning("can't claim slices: %s", error)  # looks again
        except Exception:  # of no slice: one that fails goes back by itself
            _log.exception("a round of claims failed; the next nudge or look starts another")
        return worked
