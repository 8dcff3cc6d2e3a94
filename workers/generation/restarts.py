"""Restarts of a generator that died, with a longer pause after each death in a row."""

import logging

from jobs import clock
from jobs.models.model import Model
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.engines.generator import Generator

LAST_RESORT_S = 20.0
"""After a generator's own limits: the supervisor kills a worker that can't end a hanging one."""

_MOST_DEATHS = 4  # in a row, after which what runs fails
_BACKOFF_S = 0.1  # before the second restart in a row; doubled for each one more

_log = logging.getLogger(__name__)


class Restarts:
    """Starts a generator again, and counts its deaths in a row."""

    def __init__(self, model: Model, engine: Generator, deadline: LaunchDeadline) -> None:
        self._model, self._engine, self._deadline = model, engine, deadline
        self.deaths = 0  #: in a row

    @property
    def too_many(self) -> bool:
        """True once one of the sequences that run may be the reason."""
        return self.deaths >= _MOST_DEATHS

    def survived(self) -> None:
        """Forgets the deaths: a step produced tokens."""
        self.deaths = 0

    def died(self) -> None:
        """Counts a death."""
        self.deaths += 1

    def tried(self) -> bool:
        """Starts the generator again; returns False, after a pause, where it doesn't start."""
        try:
            limit_s = self._model.limits.max_load_s + LAST_RESORT_S
            with self._deadline.within(limit_s, items=1):
                self._engine.restart()
        except Exception:
            _log.exception("the generator of %s doesn't start", self._model.key)
            self.died()
            clock.sleep(_BACKOFF_S * 2 ** min(self.deaths, 6))
            return False
        return True
