"""Log lines of failed launches, limited in rate: a model that always fails fills no disk."""

import logging
from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any

from jobs import clock, ids
from jobs.models.model import Model
from jobs.telemetry import logs
from workers.items.in_flight import InFlightSlice
from workers.items.results import error_code
from workers.scheduler.entries import Launch

_log = logging.getLogger(__name__)
_INTERVAL_S = 5.0


class FailureLog:
    """Logs failed launches of one model, at most one each `_INTERVAL_S`, and the number of those
    left out. It quotes no exception: its message may quote an input."""

    def __init__(self) -> None:
        self._logged_s, self._left_out = -inf, 0

    def log(self, model: Model, launch: Launch, outputs: Sequence[Any]) -> None:
        """Logs a launch in which something failed. outputs: one an entry."""
        now_s = clock.monotonic()
        if now_s < self._logged_s + _INTERVAL_S:
            self._left_out += 1
            return
        failed = [n for n, output in enumerate(outputs) if isinstance(output, BaseException)]
        codes = Counter(f"{error_code(outputs[n])} ({type(outputs[n]).__name__})" for n in failed)
        errors = ", ".join(f"{count} {code}" for code, count in codes.most_common())
        more = (
            f"; {self._left_out} more launches failed since the last line" if self._left_out else ""
        )
        with logs.bound_fields(model=model.key, **_ids(launch, failed[0])):
            _log.warning("%d of %d entries failed: %s%s", len(failed), len(outputs), errors, more)
        self._logged_s, self._left_out = now_s, 0


def _ids(launch: Launch, n: int) -> dict[str, str]:
    """Returns job or call, and tenant, of the n-th entry."""
    owner = launch.entries[n].owner
    if isinstance(owner, InFlightSlice):
        return {"job_id": ids.show("job", owner.lease.job_id), "tenant": owner.lease.tenant}
    return {"call_id": owner.id, "tenant": owner.tenant}
