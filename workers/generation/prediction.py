"""Predictions of a generation host, for admission of calls and sizes of slices."""

from jobs.calls.profile import Profile, Times
from workers.generation.scheduler import GenerationScheduler

_SLICE_S = 2.0  # work of a slice
_BEHIND = 16  # tenants whose own prompts are announced: those with most of them
USUAL_PROMPT = 256
"""Tokens of the call that admission predicts for."""


def profile(scheduler: GenerationScheduler, load_s: float) -> Profile:
    """Returns the predicted time to the first token, and of a mean sequence."""
    one_ms = scheduler.first_token_s(USUAL_PROMPT) * 1000
    two_ms = scheduler.first_token_s(2 * USUAL_PROMPT) * 1000
    full_ms = scheduler.sequence_s(scheduler.places) * 1000
    alone_ms = scheduler.step_time.predict_s(USUAL_PROMPT, 1, 0) * 1000
    each_ms = max(0.0, two_ms - one_ms)
    times = Times(scheduler.places, max(one_ms, full_ms), one_ms, each_ms, min(alone_ms, one_ms))
    buckets = {0: times} if scheduler.step_time.trusted else {}
    return Profile(load_s * 1000, buckets, 1, _behind_ms(scheduler, one_ms))


def _behind_ms(scheduler: GenerationScheduler, one_ms: float) -> dict[str, float]:
    """Returns the time by which a first token comes later for tenants with prompts before it."""
    tenants = [tenant for tenant, _ in scheduler.prefilling().most_common(_BEHIND)]
    first_ms = {one: scheduler.first_token_s(USUAL_PROMPT, one) * 1000 for one in tenants}
    return {tenant: its_ms - one_ms for tenant, its_ms in first_ms.items() if its_ms > one_ms}


def item_ms(scheduler: GenerationScheduler) -> float:
    """Returns the predicted time of an item in a full generator, by its share of it."""
    places = scheduler.capacity.sequences
    return scheduler.sequence_s(places) * 1000 / places


class ClaimSizes:
    """Sizes of claims of a generation host: see `workers.device.claim_capacity.ClaimSizes`."""

    def __init__(self, scheduler: GenerationScheduler, most: int) -> None:
        self._scheduler, self._most = scheduler, most

    def item_ms(self) -> float:
        """Returns the predicted time of an item."""
        return item_ms(self._scheduler)

    def slice_items(self, launches: int) -> int:
        """Returns the most items of a slice: those of two seconds, and at least as many as run."""
        each_ms, places = self.item_ms(), self._scheduler.capacity.sequences
        fit = int(_SLICE_S * 1000 / each_ms) if each_ms else places
        return min(self._most, max(places, fit))

    def claim_items(self) -> int:
        """Returns 0: a slice is enough, since all that run go on by steps."""
        return 0
