"""Restarts of a generator that died, with a longer pause after each one that fails."""

import logging

from jobs import clock
from jobs.models.model import Model
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.engines.generator import Generator, GeneratorDied

LAST_RESORT_S = 20.0
"""After a generator's own limits: the supervisor kills a worker that can't end a hanging one."""

_MOST_FAILURES = 4  # in a row, after which what runs fails
_BACKOFF_S = 0.2  # after the first that fails; doubled for each one more

_log = logging.getLogger(__name__)


class Restarts:
    """Starts a generator again, and counts the starts in a row that fail."""

    def __init__(self, model: Model, engine: Generator, deadline: LaunchDeadline) -> None:
        self._model, self._engine, self._deadline = model, engine, deadline
        self.running = False  #: the generator is being started
        self._failures = 0  # in a row, but those whose process was killed from outside

    @property
    def too_many(self) -> bool:
        """True once too many have failed for anybody to wait."""
        return self._failures >= _MOST_FAILURES

    def tried(self) -> bool:
        """Starts the generator again; returns False, after a pause, where it doesn't start."""
        self.running = True
        try:
            limit_s = self._model.limits.max_load_s + LAST_RESORT_S
            with self._deadline.within(limit_s, items=1):
                self._engine.restart()
        except Exception as error:
            _log.exception("the generator of %s doesn't start", self._model.key)
            self._failures += not (isinstance(error, GeneratorDied) and error.outside)
            clock.sleep(_BACKOFF_S * 2 ** min(self._failures, 6))
            return False
        self._failures, self.running = 0, False
        return True
