"""Failures of actuators, as events of their pools."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine as Database

from jobs.store.scaling import policies as store
from jobs.store.tenancy import EVERYBODY, acting
from workers.keeper.scaling.actuators.protocol import ActuatorError

_log = logging.getLogger(__name__)


class Failures:
    """Writes down once that a pool can't be brought to what was decided; whoever acts tries again.

    actor: of the events.
    """

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self._actor = database, actor
        self._latest: dict[str, str] = {}  # by pool

    @contextmanager
    def recorded(self, pool: str, desired: int) -> Iterator[None]:
        """Reports an ActuatorError that is raised inside, or that there was none."""
        error = ""
        try:
            yield
        except ActuatorError as failure:
            error = str(failure)
        self.report(pool, desired, error)

    def report(self, pool: str, desired: int | None, error: str) -> None:
        """Records what failed, unless that was the last to be told of the pool. error: empty: it
        worked."""
        if self._latest.get(pool, "") == error:
            return
        if error:
            _log.error("%s can't be brought to %s replicas: %s", pool, desired, error)
            with acting(self._database, EVERYBODY) as tx:
                store.add_event(tx, pool, "failed", desired, error, self._actor)
        self._latest[pool] = error
