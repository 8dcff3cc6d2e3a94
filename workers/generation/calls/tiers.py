"""Calls that a worker of a model that generates leaves to workers of other tiers
(jobs/calls/tiers/tier.py): to faster ones what it would begin too late, and to cheaper ones what
they begin in time."""

import threading
from collections.abc import Mapping

from jobs.calls.tiers.admission import SLACK
from jobs.calls.tiers.tier import Speed, Tiers, is_slower, tier_of
from jobs.models.model import Model
from workers.generation.prediction import USUAL_PROMPT, item_ms
from workers.generation.scheduler import GenerationScheduler
from workers.scheduler.snapshot import Waiting


class CallTiers:
    """Tiers of one model, as one of its workers sees them. Methods are for any thread; lock: of the
    host, which guards the scheduler."""

    def __init__(
        self, model: Model, scheduler: GenerationScheduler, lock: threading.Condition
    ) -> None:
        self._scheduler, self._lock = scheduler, lock
        self._target_s, self._margin_s = model.answer_target_ms / 1000, model.margin_ms / 1000

    def speed(self, price: float) -> Speed | None:
        """Returns how fast this worker is, as others compare it; None before it is known.

        It goes by a usual prompt alone and by a mean sequence in a full generator: neither depends
        on what runs now."""
        with self._lock:
            if not self._scheduler.step_time.trusted:
                return None
            return Speed(self._alone_s() * 1000, price * item_ms(self._scheduler))

    def least_ms(self, worker: str, tiers: Tiers) -> Mapping[int, float]:
        """Implements `LeastMs`: faster workers take what would have its first token too late here,
        if the fastest has it in time."""
        if not is_slower(worker, tiers):
            return {}
        own = tier_of(worker, tiers)
        with self._lock:
            fastest_s = self._alone_s() * tiers[0].launch_ms / tiers[own].launch_ms
            if fastest_s + self._margin_s >= self._target_s:
                return {}
            return {0: 1000 * self._needs_s(self._first_token_s())}

    def cheaper(self, now_s: float, waiting: Waiting) -> Mapping[int, float]:
        """Returns the cheaper tiers to which this worker leaves what waits, each with the time
        until when: they have room now, and begin the most urgent call in time."""
        if not waiting.pool.cheaper:
            return {}
        due_s = min(view.calls_due_s for view in waiting.lanes)
        stays = any(view.stays for view in waiting.lanes)  # not taken by spot workers
        with self._lock:
            until_s = due_s - self._needs_s(self._first_token_s())
            return {
                tier.number: until_s
                for tier in waiting.pool.cheaper
                if not (stays and tier.spot)
                and min(tier.free_s) <= now_s < until_s
                and now_s + self._needs_s(self._alone_s() * tier.ratio) <= due_s
            }

    def _needs_s(self, first_token_s: float) -> float:
        return SLACK * first_token_s + self._margin_s

    def _alone_s(self) -> float:
        return self._scheduler.step_time.predict_s(USUAL_PROMPT, 1, 0)

    def _first_token_s(self) -> float:
        return self._scheduler.first_token_s(USUAL_PROMPT)
