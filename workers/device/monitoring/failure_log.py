"""Failed launches as lines of the log: so few that a model that always fails fills no disk."""

import logging
from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any

from jobs import clock, ids
from jobs.models.model import Model
from jobs.telemetry import logs
from workers.items.in_flight import InFlightSlice
from workers.items.results import code_of
from workers.scheduler.entries import Launch

_log = logging.getLogger(__name__)
_EVERY_S = 5.0


class FailureLog:
    """Of one model. Says what failed at most every so often, and how much went unsaid. It quotes
    nothing of what an engine says: that may be of an input."""

    def __init__(self) -> None:
        self._said_s, self._unsaid = -inf, 0

    def tell(self, model: Model, launch: Launch, outputs: Sequence[Any]) -> None:
        """outputs: of all entries, in their order."""
        now_s = clock.monotonic()
        if now_s < self._said_s + _EVERY_S:
            self._unsaid += 1
            return
        failed = [n for n, output in enumerate(outputs) if isinstance(output, BaseException)]
        codes = Counter(f"{code_of(outputs[n])} ({type(outputs[n]).__name__})" for n in failed)
        said = ", ".join(f"{count} {code}" for code, count in codes.most_common())
        more = f"; {self._unsaid} more launches failed since the last line" if self._unsaid else ""
        with logs.bound_fields(model=model.key, **_about(launch, failed[0])):
            _log.warning("%d of %d entries failed: %s%s", len(failed), len(outputs), said, more)
        self._said_s, self._unsaid = now_s, 0


def _about(launch: Launch, n: int) -> dict[str, str]:
    """Whose the first of them is."""
    owner = launch.entries[n].owner
    if isinstance(owner, InFlightSlice):
        return {"job_id": ids.show("job", owner.lease.job_id), "tenant": owner.lease.tenant}
    return {"call_id": owner.id, "tenant": owner.tenant}
